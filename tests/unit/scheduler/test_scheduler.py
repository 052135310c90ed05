"""Test decisions and their explanations without quotas: first come, first served."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.views.overview import Wait
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Start
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.placement import Capacity, feasible, largest_gang
from kernel_backend.scheduler.requests import Allocation, RequestKey, SlotRequest
from kernel_backend.scheduler.state import ClusterState
from tests.support.builders import node, share


def ask(number: int, slots: int, queued_at: float | None = None) -> SlotRequest:
    return SlotRequest(number, 1, slots, queued_at if queued_at is not None else float(number))


def held(slots: tuple[int, ...], name: str = "here") -> Allocation:
    return Allocation(RequestKey(99, 1), (share(slots, name),), since=0.0)


def started(cluster: ClusterState) -> list[int]:
    return [start.request.experiment for start in decide(cluster).starts]


def test_a_gang_starts_on_free_slots():
    cluster = ClusterState((node(slots=4),), [held((1,))], (ask(1, 2),))
    assert decide(cluster).starts == (Start(ask(1, 2), (share((0, 2)),)),)


def test_first_come_is_first_served_whatever_the_order_of_the_list():
    assert started(ClusterState((node(slots=2),), (), (ask(2, 2), ask(1, 2)))) == [1]


def test_a_small_ask_does_not_overtake_the_head_of_the_queue():
    assert started(ClusterState((node(slots=2),), [held((0,))], (ask(1, 2), ask(2, 1)))) == []


def test_a_trial_that_comes_back_keeps_its_place():
    assert started(ClusterState((node(slots=1),), (), (ask(2, 1), ask(9, 1, queued_at=0.5)))) == [9]


def test_the_tightest_node_is_taken_and_fewest_nodes_come_first():
    room = Capacity([("a", 8), ("b", 4), ("c", 2)])
    assert room.place(3, one_node=False) == (("b", 3),)
    assert room.place(12, one_node=False) == (("a", 8), ("b", 4))
    assert room.place(10, one_node=False) == (("a", 8), ("c", 2))
    assert room.place(15, one_node=False) is None
    assert room.place(9, one_node=True) is None
    assert room.place(3, one_node=False, excluded={"b"}) == (("a", 3),)
    assert room.place(9, one_node=False, spare={"a": 3}) == (("b", 4), ("a", 3), ("c", 2))
    assert room.place(3, one_node=True, spare={"a": 2, "b": 1}) is None


def test_kinds_of_devices_never_mix_in_one_gang():
    nodes = (node("gpu", 2, "cuda"), node("cpu", 2, "cpu"))
    assert started(ClusterState(nodes, (), (ask(1, 3),))) == []
    assert largest_gang(nodes) == 2


def test_an_unhealthy_node_starts_nothing():
    assert started(ClusterState((node(healthy=False),), (), (ask(1, 1),))) == []


def test_an_excluded_node_is_avoided_and_named_in_the_wait():
    nodes = (node("a", 2), node("b", 2))
    wanted = replace(ask(1, 2), excluded=frozenset({"a"}))
    cluster = ClusterState(nodes, [held((0, 1), "b")], (wanted,))
    assert started(cluster) == []
    assert explain(cluster, wanted).reason == "next in queue; 2 slots requested, 0 of 2 free; without a"
    (start,) = decide(ClusterState(nodes, (), (wanted,))).starts
    assert [each.node for each in start.placement] == ["b"]
    assert feasible(nodes, 2, {"a"})
    assert not feasible(nodes, 3, {"a"})


def test_a_wait_says_its_place_and_its_reason():
    cluster = ClusterState((node(slots=2),), [held((0,))], (ask(1, 2), ask(2, 2)))
    assert explain(cluster, ask(1, 2)) == Wait(reason="next in queue; 2 slots requested, 1 of 2 free", place=1)
    assert explain(cluster, ask(2, 2)) == Wait(reason="2nd in queue; 1 of 2 slots in use", place=2)


def test_what_failed_twice_without_progress_rests_and_holds_nobody_up():
    paused = replace(ask(1, 2), failed_at=100.0, rest=4.0)
    cluster = ClusterState((node(slots=2),), (), (paused, ask(2, 1)), at=103.9)
    assert started(cluster) == [2]
    assert explain(cluster, paused).reason == (
        "tried again 4 s after the last attempt: it made no progress, nor did the one before"
    )
    assert explain(cluster, ask(2, 1)) == Wait(reason="1 slot free, starting", place=1, starts=True)
    cluster.pass_to(104.0)
    assert started(cluster) == [1]
    # A clock that was set back makes nobody wait.
    assert started(ClusterState((node(slots=2),), (), (paused, ask(2, 1)), at=50.0)) == [1]


def test_what_keeps_an_ask_from_being_started_is_said_whoever_is_ahead():
    troubled = replace(ask(2, 2), error="the disk is away")
    cluster = ClusterState((node(slots=2),), (), (ask(1, 1), troubled))
    assert explain(cluster, troubled).reason == "cannot be started just now, and is tried again: the disk is away"


def test_an_ask_that_fits_is_about_to_start():
    cluster = ClusterState((node(slots=2),), (), (ask(1, 2),))
    assert explain(cluster, ask(1, 2)) == Wait(reason="2 slots free, starting", place=1, starts=True)


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 12), max_size=12),
    st.lists(st.integers(0, 7), max_size=6),
)
def test_no_slot_is_given_twice_and_every_gang_is_whole(sizes, wanted, taken):
    nodes = tuple(node(f"n{i}", size) for i, size in enumerate(sizes))
    used = {n.name: frozenset(s for s in taken if s < n.slots) for n in nodes}
    runs = [
        Allocation(RequestKey(90 + i, 1), (share(tuple(slots), name),), 0.0)
        for i, (name, slots) in enumerate(used.items())
    ]
    starts = decide(ClusterState(nodes, runs, [ask(i, slots) for i, slots in enumerate(wanted)])).starts
    given_out = [(s.node, slot) for start in starts for s in start.placement for slot in s.slots]
    assert len(given_out) == len(set(given_out))
    assert not any(slot in used[name] for name, slot in given_out)
    assert all(sum(len(s.slots) for s in start.placement) == start.request.slots for start in starts)


def test_one_for_which_something_is_prepared_says_so_and_holds_nobody_up():
    waiting = replace(ask(1, 2), preparing="its locked environment is being built (3 s)")
    cluster = ClusterState((node(slots=2),), (), (waiting, ask(2, 2)))
    assert started(cluster) == [2]
    assert explain(cluster, waiting) == Wait(reason="its locked environment is being built (3 s)", place=1)
