"""Placement, decisions and their explanations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.overview import Wait
from kernel_backend.scheduler.decide import Start, decide
from kernel_backend.scheduler.explain import explain
from kernel_backend.scheduler.picture import Ask, Picture
from kernel_backend.scheduler.placement import feasible, largest_gang, place
from tests.builders import node, share


def ask(number: int, slots: int, queued_at: float | None = None) -> Ask:
    return Ask(number, 1, slots, queued_at if queued_at is not None else float(number))


def test_a_gang_starts_on_free_slots():
    assert decide(Picture((node(slots=4),), {"here": frozenset({1})}, (ask(1, 2),))) == [
        Start(ask(1, 2), (share((0, 2)),))
    ]


def test_first_come_is_first_served_whatever_the_order_of_the_list():
    picture = Picture((node(slots=2),), {}, (ask(2, 2), ask(1, 2)))
    assert [start.ask.experiment for start in decide(picture)] == [1]


def test_a_small_ask_does_not_overtake_the_head_of_the_queue():
    picture = Picture((node(slots=2),), {"here": frozenset({0})}, (ask(1, 2), ask(2, 1)))
    assert decide(picture) == []


def test_a_trial_that_comes_back_keeps_its_place():
    picture = Picture((node(slots=1),), {}, (ask(2, 1), ask(9, 1, queued_at=0.5)))
    assert [start.ask.experiment for start in decide(picture)] == [9]


def test_the_tightest_node_is_taken_and_fewest_nodes_come_first():
    nodes = (node("a", 8), node("b", 4), node("c", 2))
    free = {n.name: list(range(n.slots)) for n in nodes}
    assert place(nodes, free, 3) == (share((0, 1, 2), "b"),)
    assert [(s.node, len(s.slots)) for s in place(nodes, free, 12) or ()] == [("a", 8), ("b", 4)]
    assert place(nodes, free, 15) is None


def test_kinds_of_devices_never_mix_in_one_gang():
    nodes = (node("gpu", 2, "cuda"), node("cpu", 2, "cpu"))
    free = {"gpu": [0, 1], "cpu": [0, 1]}
    assert place(nodes, free, 3) is None
    assert largest_gang(nodes) == 2


def test_an_unhealthy_node_starts_nothing():
    assert decide(Picture((node(healthy=False),), {}, (ask(1, 1),))) == []


def test_an_excluded_node_is_avoided_and_named_in_the_wait():
    picture = Picture((node("a", 2), node("b", 2)), {"b": frozenset({0, 1})}, (replace(ask(1, 2), excluded={"a"}),))
    assert decide(picture) == []
    assert explain(picture, picture.queue[0]).reason == "next in queue; 2 slots asked, 0 of 2 free; without a"
    (start,) = decide(replace(picture, used={}))
    assert [each.node for each in start.placement] == ["b"]
    assert feasible(picture.nodes, 2, {"a"})
    assert not feasible(picture.nodes, 3, {"a"})


def test_a_wait_says_its_place_and_its_reason():
    picture = Picture((node(slots=2),), {"here": frozenset({0})}, (ask(1, 2), ask(2, 1)))
    assert explain(picture, ask(1, 2)) == Wait(reason="next in queue; 2 slots asked, 1 of 2 free", place=1)
    assert explain(picture, ask(2, 1)) == Wait(reason="2nd in queue; 1 of 2 slots in use", place=2)


def test_what_failed_twice_without_progress_rests_and_holds_nobody_up():
    resting = replace(ask(1, 2), failed_at=100.0, rest=4.0)
    picture = Picture((node(slots=2),), {}, (resting, ask(2, 1)), at=103.9)
    assert [start.ask.experiment for start in decide(picture)] == [2]
    assert explain(picture, resting).reason == (
        "tried again 4 s after the last attempt: it made no progress, nor did the one before"
    )
    assert explain(picture, ask(2, 1)) == Wait(reason="1 slot free, starting", place=1)
    assert [start.ask.experiment for start in decide(replace(picture, at=104.0))] == [1]
    # A clock that was set back makes nobody wait.
    assert [start.ask.experiment for start in decide(replace(picture, at=50.0))] == [1]


def test_what_keeps_an_ask_from_being_started_is_said_whoever_is_ahead():
    troubled = replace(ask(2, 2), trouble="the disk is away")
    picture = Picture((node(slots=2),), {}, (ask(1, 1), troubled))
    assert explain(picture, troubled).reason == "cannot be started just now, and is tried again: the disk is away"


def test_an_ask_that_fits_is_about_to_start():
    picture = Picture((node(slots=2),), {}, (ask(1, 2),))
    assert explain(picture, ask(1, 2)) == Wait(reason="2 slots free, starting", place=1)


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 12), max_size=12),
    st.lists(st.integers(0, 7), max_size=6),
)
def test_no_slot_is_given_twice_and_every_gang_is_whole(sizes, wanted, taken):
    nodes = tuple(node(f"n{i}", size) for i, size in enumerate(sizes))
    used = {n.name: frozenset(s for s in taken if s < n.slots) for n in nodes}
    starts = decide(Picture(nodes, used, tuple(ask(i, slots) for i, slots in enumerate(wanted))))
    given_out = [(s.node, slot) for start in starts for s in start.placement for slot in s.slots]
    assert len(given_out) == len(set(given_out))
    assert not any(slot in used[name] for name, slot in given_out)
    assert all(sum(len(s.slots) for s in start.placement) == start.ask.slots for start in starts)


def test_one_for_which_something_is_prepared_says_so_and_holds_nobody_up():
    waiting = replace(ask(1, 2), preparing="its locked environment is being built (3 s)")
    picture = Picture((node(slots=2),), {}, (waiting, ask(2, 2)))
    assert [start.ask.experiment for start in decide(picture)] == [2]
    assert explain(picture, waiting) == Wait(reason="its locked environment is being built (3 s)", place=1)
