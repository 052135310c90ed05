"""Test which objects are fetched first and evicted first."""

from __future__ import annotations

import random

import pytest

from kernel_backend.inputs.order import Order

NAMES = [f"{number:03}" for number in range(200)]


def fetches(order: Order, reads: list[str], room: int, ahead: bool = True) -> int:
    """Return how many fetches serve these reads where `room` objects fit; up to one is made before each read."""
    here: set[str] = set()
    count = 0

    def fetch(name: str, demanded: bool) -> None:
        nonlocal count
        while len(here) >= room:
            last = order.last_here(but=())
            assert last is not None
            if not demanded and order.due(last) <= order.due(name):
                return
            here.remove(last)
            order.missing(last)
        order.fetching(name)
        order.arrived(name)
        here.add(name)
        count += 1

    for name in reads:
        first = order.first_missing()
        if ahead and first is not None:
            fetch(first, demanded=False)
        order.read(name)
        if not order.is_here(name):
            fetch(name, demanded=True)
    return count


def optimal(reads: list[str], room: int) -> int:
    """Return how many fetches an optimal cache needs, which fetches nothing in advance (Belady 1966)."""
    here: set[str] = set()
    count = 0
    for place, name in enumerate(reads):
        if name in here:
            continue
        if len(here) >= room:
            rest = reads[place:]
            here.remove(max(here, key=lambda each: rest.index(each) if each in rest else len(reads)))
        here.add(name)
        count += 1
    return count


def shuffled(epochs: int) -> list[str]:
    return [name for epoch in range(epochs) for name in random.Random(epoch).sample(NAMES, len(NAMES))]


def test_a_known_order_is_served_with_the_fewest_fetches() -> None:
    reads = shuffled(3)
    order = Order(NAMES)
    order.expect(0, reads)
    assert fetches(order, reads, 50, ahead=False) == optimal(reads, 50)


@pytest.mark.parametrize("known", [True, False])
def test_fetching_in_advance_costs_no_more_than_reading_everything_from_the_store(known: bool) -> None:
    reads = shuffled(4)
    order = Order(NAMES)
    if known:
        order.expect(0, reads)
    assert fetches(order, reads, 100) <= (1.0 if known else 1.25) * len(reads)


def test_with_room_for_all_of_it_each_object_is_fetched_once() -> None:
    order = Order(NAMES)
    assert fetches(order, shuffled(3), len(NAMES)) == len(NAMES)
    assert order.complete
    assert order.first_missing() is None


def test_ranks_that_read_side_by_side_are_served_in_turn() -> None:
    order = Order(NAMES)
    order.expect(1, NAMES[150:])
    order.expect(2, NAMES[:50])
    found = []
    for _ in range(4):
        first = order.first_missing()
        assert first is not None
        order.fetching(first)
        found.append(first)
    assert sorted(found) == [NAMES[0], NAMES[1], NAMES[150], NAMES[151]]
    order.forget(1)
    assert order.due(NAMES[199]) > order.due(NAMES[49])


def test_what_is_pinned_or_unknown_stays_out_of_it() -> None:
    order = Order(NAMES[:3])
    order.expect(0, ["elsewhere", NAMES[2]])
    for name in NAMES[:3]:
        order.arrived(name)
    assert order.last_here(but={NAMES[1]}) == NAMES[0]
    assert order.last_here(but=set(NAMES)) is None
    assert order.last_here(but=()) == NAMES[1]
    order.missing(NAMES[1])
    assert order.last_here(but=()) == NAMES[0]
    assert order.first_missing() == NAMES[1]
