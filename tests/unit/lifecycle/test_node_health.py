"""Test which nodes are suspect, decided from faults and the time."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.lifecycle.node_health import faults_of, gpu_error, suspicions
from kernel_backend.model.launch.nodes import GangNode
from kernel_backend.model.node_faults import NodeFault, NodeName
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.resources import Share
from kernel_backend.model.states import AttemptState, Outcome
from kernel_backend.model.trial import Attempt, Failure

HOUR, MINUTE = 3600.0, 60.0
FOUR = {"gpu": 4}


def fault(node: str = "n1", at: float = 0.0, kind: Any = "lost", trial: int = 1, pool: str = "gpu") -> NodeFault:
    return NodeFault(pool=pool, node=node, kind=kind, attempt=f"{trial}.1-{int(at) + 1}", at=at, reason=f"{kind} there")


def suspect(faults: list[NodeFault], now: float, sizes: dict[str, int] | None = None) -> list[str]:
    """Return the nodes that are excluded."""
    found = suspicions(faults, sizes or FOUR, now)
    return sorted(name.node for name, each in found.items() if each.left_out)


def test_one_lost_attempt_may_have_any_cause():
    assert suspect([fault()], 1.0) == []


@pytest.mark.parametrize("kind", ["lost", "start"])
def test_two_losses_within_an_hour_make_a_node_suspect_for_an_hour(kind):
    faults = [fault(at=0.0, kind=kind), fault(at=50 * MINUTE, kind=kind, trial=2)]
    assert suspect(faults, 51 * MINUTE) == ["n1"]
    assert suspect(faults, 109 * MINUTE) == ["n1"]
    assert suspect(faults, 111 * MINUTE) == []


def test_losses_an_hour_apart_or_of_two_kinds_do_not_count_together():
    assert suspect([fault(at=0.0), fault(at=61 * MINUTE)], 62 * MINUTE) == []
    assert suspect([fault(at=0.0), fault(at=MINUTE, kind="start")], 2 * MINUTE) == []


@pytest.mark.parametrize("kind", ["gpu", "devices", "version", "clock"])
def test_one_fault_of_the_node_itself_is_enough(kind):
    found = suspicions([fault(kind=kind)], FOUR, 1.0)
    assert found[NodeName("gpu", "n1")].reason == f"{kind} there"
    assert found[NodeName("gpu", "n1")].until == HOUR


def test_each_repetition_doubles_the_time_up_to_a_day():
    at, faults, lengths = 0.0, [], []
    for _ in range(7):
        faults.append(fault(at=at, kind="gpu"))
        (found,) = suspicions(faults, FOUR, at).values()
        lengths.append(found.until - found.since)
        at = found.until + 1
    assert [length / HOUR for length in lengths] == [1, 2, 4, 8, 16, 24, 24]


def test_gangs_that_ran_on_while_the_node_was_left_out_do_not_prolong_it():
    faults = [fault(at=0.0, kind="gpu"), fault(at=10 * MINUTE, kind="gpu", trial=2), fault(at=20 * MINUTE, trial=3)]
    assert suspect(faults, 59 * MINUTE) == ["n1"]
    assert suspect(faults, 61 * MINUTE) == []


def test_at_most_half_of_a_pool_is_left_out_the_first_suspects_first():
    faults = [fault(f"n{number}", at=float(number), kind="gpu", trial=number) for number in (3, 1, 4, 2)]
    assert suspect(faults, 60.0) == ["n1", "n2"]
    assert suspect(faults, 60.0, {"gpu": 5}) == ["n1", "n2"]
    found = suspicions(faults, FOUR, 60.0)
    assert not found[NodeName("gpu", "n4")].left_out
    assert found[NodeName("gpu", "n4")].reason == "gpu there"


def test_the_only_node_of_a_pool_is_never_suspect():
    assert suspicions([fault(kind="gpu")], {"gpu": 1}, 1.0) == {}
    assert suspicions([fault(kind="gpu", pool="gone")], FOUR, 1.0) == {}


def test_pools_are_apart_even_if_their_nodes_have_the_same_names():
    faults = [fault(at=0.0), fault(at=1.0, pool="cpu", trial=2)]
    assert suspect(faults, 2.0, {"gpu": 2, "cpu": 2}) == []


def test_a_trial_that_is_lost_everywhere_says_nothing_of_nodes():
    faults = [fault(node, at=at, trial=1) for at, node in enumerate(["n1", "n1", "n2", "n2"])]
    assert suspect(faults, 10.0) == ["n1", "n2"]
    faults += [fault("n3", at=5.0, trial=1)]
    assert suspect(faults, 10.0) == []
    faults += [fault("n3", at=6.0, trial=2), fault("n3", at=7.0, trial=3)]
    assert suspect(faults, 10.0) == ["n3"]


def attempt(*names: str, granted: bool = True) -> Attempt:
    asked = tuple(Share(node=f"asked-{nth}", kind="cuda", address="", slots=(0,)) for nth, _ in enumerate(names))
    nodes = tuple(GangNode(name=name, address="", kind="cuda", slots=1) for name in names) if granted else ()
    state, at = (AttemptState.RUNNING, 2.0) if granted else (AttemptState.PENDING, None)
    return Attempt(
        experiment=1, trial=1, number=3, state=state, placement=asked, created_at=1.0, granted_at=at, nodes=nodes
    )


def result(failure: Failure | None = None, outcome: Any = "lost", problems: Any = ()) -> AttemptResult:
    return AttemptResult(outcome=outcome, exit_codes=(), failure=failure, problems=problems, ended_at=5.0)


def blamed(gang: Attempt, outcome: Outcome, found: AttemptResult | None, away: tuple[str, ...] = ()) -> list[Any]:
    return [(each.node, each.kind, each.reason) for each in faults_of(gang, outcome, found, away, 9.0)]


LOST = Failure(rank=0, type="NodeLost", message="Slurm lost a node of n[1-2]", consequence=True)


def test_a_gang_that_vanishes_is_blamed_on_its_only_node_once_it_had_begun():
    assert blamed(attempt("n1"), Outcome.LOST, None) == [("n1", "lost", "its launcher vanished without a record")]
    assert blamed(attempt("n1", granted=False), Outcome.LOST, None) == []
    assert blamed(attempt("n1", "n2"), Outcome.LOST, None) == []


def test_of_several_nodes_those_that_do_not_answer_are_blamed():
    assert blamed(attempt("n1", "n2"), Outcome.LOST, result(LOST), ("n2", "n7")) == [("n2", "lost", LOST.message)]


def test_launchers_name_the_node_that_was_lost():
    known = (NodeProblem(node="n2", kind="lost", reason="node n2 was lost"),)
    found = blamed(attempt("n1", "n2"), Outcome.LOST, result(LOST, problems=known), ("n1",))
    assert found == [("n2", "lost", "node n2 was lost")]


@pytest.mark.parametrize("kind", ["Preempted", "Cancelled", "JobForgotten", "EngineUnavailable", "ForkserverLost"])
def test_a_gang_that_is_lost_for_another_reason_is_blamed_on_no_node(kind):
    failure = Failure(rank=0, type=kind, message="it is over", consequence=True)
    assert blamed(attempt("n1"), Outcome.LOST, result(failure)) == []


def test_an_error_of_the_users_own_is_blamed_on_no_node():
    for text in ("CUDA error: an illegal memory access was encountered", "CUDA out of memory", "bad label"):
        failure = Failure(rank=0, type="RuntimeError", message=text)
        assert blamed(attempt("n1"), Outcome.FAILED, result(failure, "failed")) == []


def test_an_error_of_a_gpu_is_blamed_on_the_node_of_its_rank():
    text = "my secret: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be reported later"
    failure = Failure(rank=1, type="AcceleratorError", message=text)
    found = blamed(attempt("n1", "n2"), Outcome.FAILED, result(failure, "failed"))
    assert found == [("n2", "gpu", "a rank met the GPU error 'uncorrectable ECC'")]
    assert gpu_error(failure.model_copy(update={"message": "loss is nan"})) == ""
