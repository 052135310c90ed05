"""Test that a gang's wait and end are explained by the states of its pods, in Kubernetes' own words."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.engines.kubernetes.pods import (
    PodState,
    failed_launcher,
    half_since,
    hopeless,
    is_lost,
    out_of_memory,
    pod_state,
    taken_away,
    taken_by,
    wait_text,
)
from kernel_backend.model.states import Outcome

NOW = 1_000_000.0


def pod(phase: str = "Running", node: str = "n1", deleted: str = "", **status: Any) -> PodState:
    metadata = {"name": "daylight-1-1-1-ab-0", **({"deletionTimestamp": deleted} if deleted else {})}
    limits = {"resources": {"limits": {"memory": "16000Mi"}}}
    spec = {"containers": [limits], **({"nodeName": node} if node else {})}
    return pod_state({"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}})


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"state": state}]


def unschedulable(message: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}


def disrupted(reason: str) -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


def placed(phase: str = "Running", at: float = NOW) -> PodState:
    return pod(phase)._replace(scheduled_at=at)


def waits() -> PodState:
    return pod("Pending", node="", **unschedulable("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."))


def test_a_wait_has_the_schedulers_reason_and_tells_which_part_has_nodes():
    assert wait_text([waits()], 1) == "Kubernetes: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert wait_text([placed(), waits()], 2).startswith("Kubernetes: 1 of 2 pods have a node; 0/2 nodes")
    creating = pod("Pending", containerStatuses=container(waiting={"reason": "ContainerCreating"}))
    assert wait_text([creating], 1) == "Kubernetes: containers are being created on n1"
    assert wait_text([], 1) == "Kubernetes: submitted"


def test_a_pod_behind_a_gate_waits_for_who_set_it_and_makes_no_half_gang():
    spec = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [{}]}
    gated = {**unschedulable("Scheduling is blocked"), "phase": "Pending"}
    held = pod_state({"metadata": {"name": "daylight-1-1-1-ab-1"}, "spec": spec, "status": gated})
    assert "scheduling gates (kueue.x-k8s.io/admission)" in wait_text([held], 1)
    assert wait_text([held], 1, {"daylight-1-1-1-ab-1": "Kueue: no quota"}) == "Kueue: no quota"
    assert half_since([placed(at=NOW - 900), held], 2) is None


def test_a_half_gang_is_one_of_which_the_rest_finds_no_node():
    assert half_since([placed(at=NOW - 9), placed(at=NOW - 5), waits()], 3) == NOW - 9
    assert half_since([placed(), placed()], 2) is None
    assert half_since([waits(), waits()], 2) is None
    assert half_since([placed()], 2) is None  # the other has not been looked at yet


def test_an_image_that_cannot_be_pulled_is_waited_for_a_minute():
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nope"'}
    gang = [pod("Pending", containerStatuses=container(waiting=waiting))]
    assert not hopeless([gang[0]._replace(scheduled_at=NOW)], NOW + 30)
    why = hopeless([gang[0]._replace(scheduled_at=NOW)], NOW + 90)
    assert why.startswith('Kubernetes: ImagePullBackOff: Back-off pulling image "nope". To change: change `image`')
    bad = pod("Pending", containerStatuses=container(waiting={"reason": "InvalidImageName", "message": "x y"}))
    assert hopeless([bad], NOW)


def test_too_much_memory_is_told_with_the_limit():
    ended = out_of_memory(
        [pod("Failed", containerStatuses=container(terminated={"reason": "OOMKilled", "exitCode": 137}))]
    )
    assert ended is not None
    assert ended.outcome is Outcome.FAILED
    assert ended.failure is not None
    assert ended.failure.type == "OutOfMemory"
    assert "its limit of 16000Mi: raise `memory_per_slot`" in ended.failure.message


@pytest.mark.parametrize(
    ("state", "kind", "outcome"),
    [
        (pod("Failed", reason="Evicted", message="The node was low on resource: memory."), "Evicted", Outcome.LOST),
        (pod("Failed", reason="Evicted", message='Usage of EmptyDir volume "shm" exceeds'), "Evicted", Outcome.FAILED),
        (pod("Failed", conditions=disrupted("PreemptionByScheduler")), "Preempted", Outcome.LOST),
        (pod("Failed", conditions=disrupted("DeletionByTaintManager")), "NodeLost", Outcome.LOST),
        (pod("Failed", reason="NodeShutdown", message="Pod was terminated"), "NodeLost", Outcome.LOST),
        (pod("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough"), "Refused", Outcome.LOST),
    ],
)
def test_a_pod_that_kubernetes_takes_away_ends_its_gang_with_the_reason(state, kind, outcome):
    ended = taken_away([state], NOW, ())
    assert ended is not None
    assert ended.failure is not None
    assert (ended.outcome, ended.failure.type) == (outcome, kind)
    assert ended.failure.consequence is (outcome is Outcome.LOST)


def test_a_deleted_pod_is_lost_once_its_node_is_away_or_its_grace_period_is_long_over():
    deleted = pod(deleted="2026-01-01T00:00:00Z")  # Running, though nobody can end it
    assert deleted.deadline is not None
    assert not is_lost(deleted, deleted.deadline - 1, ())
    assert is_lost(deleted, deleted.deadline - 1, ["n1"])
    assert is_lost(deleted, deleted.deadline + 60, ())
    assert not is_lost(pod(), NOW, ["n1"])  # it was not deleted, and may run on
    assert not is_lost(pod("Succeeded", deleted="2026-01-01T00:00:00Z"), deleted.deadline + 60, ())
    ended = taken_away([deleted], deleted.deadline, ["n1"])
    assert ended is not None
    assert [(each.node, each.kind) for each in ended.problems] == [("n1", "lost")]


def test_a_pod_that_is_preempted_may_save_a_checkpoint_first():
    leaving = pod(deleted="2026-01-01T00:00:00Z", conditions=disrupted("PreemptionByScheduler"))
    assert leaving.deadline is not None
    assert taken_away([leaving], leaving.deadline - 20, ()) is None


def test_a_pod_that_leaves_tells_who_has_asked_it():
    name = "daylight-1-1-1-ab-0"
    preempted = {name: "Preempted: Preempted by ml/urgent on node n1"}
    assert (
        taken_by([pod()], preempted)
        == f"Kubernetes ended pod {name} on n1: Preempted: Preempted by ml/urgent on node n1"
    )
    leaving = pod(conditions=disrupted("EvictionByEvictionAPI"))
    assert taken_by([leaving], {}) == f"Kubernetes ended pod {name} on n1: EvictionByEvictionAPI"
    assert taken_by([pod()], {}) == ""


@pytest.mark.parametrize(
    ("terminated", "text"),
    [
        ({"exitCode": 1, "message": "No module named kernel_backend\n"}, "install daylight into the image"),
        (
            {"exitCode": 1, "message": "the service does not hear that: no answer\n"},
            "let pods reach the service: check `c.Daylight.launchers`",
        ),
        (
            {"exitCode": 128, "reason": "StartError", "message": 'exec: "python9": not found'},
            "change `image` or `python`",
        ),
    ],
)
def test_a_launcher_that_cannot_begin_is_a_failure_with_its_last_line(terminated, text):
    state = pod("Failed", containerStatuses=container(terminated=terminated))
    ended = failed_launcher([state], [], {state.name: 0})
    assert ended is not None
    assert ended.failure is not None
    assert ended.outcome is Outcome.FAILED
    assert terminated["message"].strip() in ended.failure.message
    assert text in ended.failure.message
    assert failed_launcher([state], [0], {state.name: 0}) == (Outcome.LOST, None, ())  # it had begun
