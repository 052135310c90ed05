"""Contract of a store's quotas, a part of the store's contract."""

from __future__ import annotations

import random
import threading
from typing import Any, NoReturn

import pytest
from store_contract import GANG, draft, placed

from kernel_backend.errors import Forbidden, NotFound
from kernel_backend.model import events
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.launch.nodes import GangNode
from kernel_backend.model.node_faults import NodeFault, NodeName
from kernel_backend.model.states import AttemptState, ExperimentState, IllegalTransition, Outcome
from kernel_backend.store.base import Store


def deed(act: str = "quota", on: str = "user dave", **fields: Any) -> AuditEntry:
    return AuditEntry(**({"at": 7.0, "who": "ada", "act": act, "on": on, "detail": "limit 4 -> 8"} | fields))


def refuse(before: Experiment) -> NoReturn:
    raise Forbidden(f"#{before.number} is not yours")


class SharingContract:
    """Tests of quotas, a mixin for the test class of each store."""

    def test_a_quota_is_what_was_set_last(self, store: Store) -> None:
        assert store.quotas() == {}
        store.set_quota("user", "dave", {"limit": 8, "slot_hours": {"hours": 500.0, "window": 604800.0}}, deed())
        store.set_quota("group", "dave", {"weight": 2.5}, deed())
        store.set_quota("user", "dave", {"limit": None, "guarantee": 4}, deed())
        assert store.quotas() == {("user", "dave"): {"limit": None, "guarantee": 4}, ("group", "dave"): {"weight": 2.5}}
        store.set_quota("user", "dave", {}, deed())
        assert store.quotas() == {("group", "dave"): {"weight": 2.5}}

    def test_names_are_kept_as_they_are(self, store: Store) -> None:
        names = ["dave@example.org", "Ünï çødé", "a'b\"c; DROP TABLE quotas", "x" * 300, "%_\\"]
        for name in names:
            store.set_quota("user", name, {"limit": 1}, deed(on=f"user {name}"))
        assert {name for _, name in store.quotas()} == set(names)
        assert [each.on for each in store.audit(limit=1)] == [f"user {names[-1]}"]

    def test_a_node_is_drained_once_and_the_second_time_is_no_deed(self, store: Store) -> None:
        assert store.set_drained("n1", True, deed("drain", "node n1"))
        assert not store.set_drained("n1", True, deed("drain", "node n1"))
        assert store.drained() == {"n1"}
        assert store.set_drained("n1", False, deed("undrain", "node n1"))
        assert not store.set_drained("n2", False, deed("undrain", "node n2"))
        assert store.drained() == frozenset()
        assert [each.act for each in store.audit()] == ["undrain", "drain"]

    def test_faults_of_nodes_are_stored_once_and_forgotten_with_time_or_by_an_admin(self, store: Store) -> None:
        def fault(node: str, at: float, **fields: Any) -> NodeFault:
            about = {"pool": "gpu", "kind": "lost", "attempt": "1.1-1", "reason": 'Slurm: it\'s "gone"'}
            return NodeFault.model_validate(about | {"node": node, "at": at} | fields)

        first, second, other = fault("n1", 5.0), fault("n2", 6.0, kind="gpu"), fault("n1", 7.0, pool="cpu")
        assert store.add_node_fault(first, 0.0)
        assert not store.add_node_fault(fault("n1", 5.5), 0.0)
        assert store.add_node_fault(other, 0.0)
        assert store.add_node_fault(second, 0.0)
        assert store.node_faults(0.0) == [first, second, other]
        assert store.node_faults(6.0) == [second, other]
        assert store.forgive_node(NodeName("gpu", "n2"), deed("trust", "node n2"))
        assert not store.forgive_node(NodeName("gpu", "n2"), deed("trust", "node n2"))
        assert store.node_faults(0.0) == [first, other]
        assert store.add_node_fault(second, 6.0)
        assert store.node_faults(0.0) == [second, other]
        assert [each.act for each in store.audit()] == ["trust"]

    def test_the_whole_log_is_searched_by_all_words_wherever_they_stand(self, store: Store) -> None:
        for who, on in (("ada", "node n1"), ("ada", "user Ünï"), ("bob", "node N1"), ("bob", "100%_\\ of 'it'")):
            store.write_down(deed("Drain", on, who=who))
        store.write_down(deed("stop", "#12", detail="of dave"))
        found = {search: [each.seq for each in store.audit(search=search)] for search in ("n1", " DRAIN ada", "ÜNÏ")}
        assert found == {"n1": [3, 1], " DRAIN ada": [2, 1], "ÜNÏ": [2]}
        assert [each.seq for each in store.audit(search="dave")] == [5]
        assert [each.seq for each in store.audit(search="%_\\ 'it'")] == [4]
        assert store.audit(search="n_1") == store.audit(search="ada bob") == []
        assert [each.seq for each in store.audit(search="drain", limit=2)] == [4, 3]
        assert [each.seq for each in store.audit(search="drain", before=3, limit=2)] == [2, 1]
        assert len(store.audit(search=" ")) == 5

    def test_deeds_are_numbered_without_gaps_and_read_newest_first(self, store: Store) -> None:
        written = [store.write_down(deed("stop", f"#{number}", at=float(number))) for number in range(1, 6)]
        assert [each.seq for each in written] == [1, 2, 3, 4, 5]
        assert store.audit() == written[::-1]
        assert [each.seq for each in store.audit(limit=2)] == [5, 4]
        assert [each.seq for each in store.audit(before=4, limit=2)] == [3, 2]
        assert store.audit(before=1) == []

    def test_deeds_of_many_at_once_have_numbers_of_their_own(self, store: Store) -> None:
        def write(who: str) -> None:
            for number in range(10):
                store.set_quota("user", who, {"limit": number}, deed(who=who))

        threads = [threading.Thread(target=write, args=(f"admin{nth}",)) for nth in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = store.audit()
        assert sorted(each.seq for each in found) == list(range(1, 41))
        assert store.quotas() == {("user", f"admin{nth}"): {"limit": 9} for nth in range(4)}

    def test_what_cannot_be_done_leaves_no_deed(self, store: Store) -> None:
        store.add_experiment(draft(), at=1.0)
        with pytest.raises(NotFound):
            store.update_experiment(9, 2.0, lambda _: ({"priority": 3}, deed("priority", "#9")))
        with pytest.raises(Forbidden):
            store.update_experiment(1, 2.0, refuse)
        store.advance_experiment(1, events.Stop(), 2.0, deed("stop", "#1"))
        with pytest.raises(IllegalTransition):
            store.advance_experiment(1, events.Resumed(), 3.0, deed("resume", "#1"))
        assert [each.act for each in store.audit()] == ["stop"]
        assert store.experiment(1).state is ExperimentState.STOPPING

    def test_a_priority_is_told_to_whoever_watches(self, store: Store) -> None:
        store.add_experiment(draft(), at=1.0)
        changed = store.update_experiment(1, 2.0, lambda _: ({"priority": 5}, deed("priority", "#1")))
        assert store.experiment(1) == changed
        assert changed.priority == 5
        newest = store.messages(0)[-1]
        assert (newest.type, Experiment.model_validate(newest.data)) == ("experiment", changed)
        assert [each.act for each in store.audit()] == ["priority"]
        config = Config(slots=2, priority=-3)
        assert store.update_experiment(1, 3.0, lambda _: ({"config": config, "priority": None}, None)).config == config
        assert len(store.audit()) == 1

    def test_what_an_account_held_is_what_its_attempts_had(self, store: Store) -> None:
        def train(owner: str, group: str, begun: float, ended: float | None) -> None:
            number = store.add_experiment(draft(owner=owner, group=group), at=begun)[0].number
            attempt = store.add_attempt(number, 1, GANG, None, "digest", at=begun)
            if ended is not None:
                store.advance_attempt(attempt.id, events.Ended(), ended, outcome=Outcome.OK)

        train("dave", "vision", 10.0, 20.0)
        train("dave", "speech", 15.0, 40.0)
        train("eve", "vision", 30.0, None)
        assert sorted(store.held("user", "dave", 0.0, 100.0)) == [(10.0, 20.0, 2), (15.0, 40.0, 2)]
        assert sorted(store.held("group", "vision", 0.0, 100.0)) == [(10.0, 20.0, 2), (30.0, None, 2)]
        assert store.held("group", "vision", 20.0, 30.0) == []
        assert store.held("user", "dave", 20.0, 30.0) == [(15.0, 40.0, 2)]
        assert store.held("group", "dave", 0.0, 100.0) == []

    def test_an_attempt_uses_slots_from_the_moment_its_engine_grants_them(self, store: Store) -> None:
        number = store.add_experiment(draft(owner="dave"), at=1.0)[0].number
        waiting = store.add_attempt(number, 1, GANG, None, "digest", at=10.0, granted=False)
        assert (waiting.state, waiting.granted_at, waiting.nodes) == (AttemptState.PENDING, None, ())
        assert (store.slot_seconds(number, 50.0), store.trial_seconds(number, 50.0)) == (0.0, {1: 0.0})
        nodes = (GangNode(name="n7", address="10.0.0.7", kind="cuda", slots=2, devices=("A100", "A100")),)
        granted = store.advance_attempt(waiting.id, events.Placed(), 60.0, granted_at=60.0, nodes=nodes)
        assert (granted.state, store.attempt(waiting.id)) == (AttemptState.PLACED, granted)
        assert store.attempt(waiting.id).nodes == nodes
        assert store.slot_seconds(number, 70.0) == 20.0
        assert store.held("user", "dave", 0.0, 100.0) == [(60.0, None, 2)]
        assert [each.begun for each in store.usage_intervals(0.0)] == [60.0]

    def test_an_attempt_that_ends_in_its_engines_queue_has_used_nothing(self, store: Store) -> None:
        number = store.add_experiment(draft(owner="dave"), at=1.0)[0].number
        waiting = store.add_attempt(number, 1, GANG, None, "digest", at=10.0, granted=False)
        store.advance_attempt(waiting.id, events.Ended(), 40.0, outcome=Outcome.KILLED)
        assert (store.slot_seconds(number, 50.0), store.trial_seconds(number, 50.0)) == (0.0, {1: 0.0})
        assert store.held("user", "dave", 0.0, 100.0) == [(40.0, 40.0, 2)]

    def test_a_pool_is_kept_until_it_is_removed(self, store: Store) -> None:
        settings = PoolSettings(engine="slurm", partition="a100", extra=("--reservation=course",))
        assert store.set_pool("gpu", settings, deed("add pool", "gpu"))
        assert not store.set_pool("gpu", settings, deed("add pool", "gpu"))
        assert store.pools() == [Pool(name="gpu", settings=settings)]
        assert store.set_pool("gpu", PoolSettings(engine="slurm"), deed("change pool", "gpu"))
        assert store.pools() == [Pool(name="gpu", settings=PoolSettings(engine="slurm"))]
        assert store.set_pool("gpu", None, deed("remove pool", "gpu"))
        assert not store.set_pool("gpu", None, deed("remove pool", "gpu"))
        assert store.pools() == []
        assert [each.act for each in store.audit()] == ["remove pool", "change pool", "add pool"]

    def test_what_was_held_is_told_as_a_slow_look_tells_it(self, store: Store) -> None:
        draw, intervals = random.Random(7), []
        for number in range(1, 31):
            store.add_experiment(draft(owner=f"user{number % 3}"), at=1.0)
            begun = draw.uniform(0, 100)
            attempt = placed(store, number=number)
            ended = draw.choice((None, begun + draw.uniform(0, 50)))
            store.advance_attempt(attempt.id, events.Ended(), 9.0, created_at=begun, granted_at=begun, ended_at=ended)
            intervals.append((f"user{number % 3}", begun, ended))
        for _ in range(20):
            since = draw.uniform(0, 100)
            until = since + draw.uniform(0, 40)
            for name in ("user0", "user1", "user2", "nobody"):
                expected = sorted(
                    (begun, ended, 2)
                    for owner, begun, ended in intervals
                    if owner == name and begun < until and (ended is None or ended > since)
                )
                assert sorted(store.held("user", name, since, until)) == expected
