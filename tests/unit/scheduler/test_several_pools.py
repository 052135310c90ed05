"""Test requests that wait in several pools: the first pool that can start one does so, once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.order import in_order
from kernel_backend.scheduler.requests import RequestKey, SlotRequest
from kernel_backend.scheduler.state import ClusterState
from tests.support.clusters import Cluster, nodes

EITHER: dict[str, Any] = {"pool": "gpu", "pools": ("gpu", "cloud")}


def two(gpu: int = 4, cloud: int = 4, **more: Any) -> Cluster:
    """Return a pool gpu with the node g1, and a pool cloud (alphabetically first) with c1."""
    return Cluster(*nodes(1, gpu, pool="gpu", prefix="g"), *nodes(1, cloud, pool="cloud", prefix="c"), **more)


def test_the_first_pool_with_room_has_it():
    c = two()
    c.ask("ada", 4, **EITHER), c.ask("bob", 4, **EITHER)
    assert sorted(c.decide()) == ["1 starts on 4 of g1", "2 starts on 4 of c1"]
    c.ask("cy", 4, pool="cloud", pools=("cloud", "gpu"))
    c.ends(1)
    assert c.decide() == ["3 starts on 4 of g1"]


def test_it_keeps_its_place_in_both_queues_and_says_why_it_waits_in_each():
    c = two()
    c.ask("ada", 4, pool="gpu"), c.ask("ada", 3, pool="cloud")
    c.decide()
    c.at(1.0)
    c.ask("bob", 2, pool="gpu")
    c.at(2.0)
    both = c.ask("bob", 2, one_node=True, **EITHER)
    c.at(3.0)
    last = c.ask("bob", 1, pool="cloud", max_time=None)
    assert [request.experiment for request in in_order(c.picture, "gpu")] == [3, both]
    assert [request.experiment for request in in_order(c.picture, "cloud")] == [both, last]
    assert c.why(both) == ("gpu: 2nd in queue; no node has 2 free; cloud: next in queue; no node has 2 free")
    assert explain(c.picture, c.picture.queue.requests[RequestKey(both, 1)]).place == 1


def test_what_others_have_reserved_in_the_preferred_pool_sends_it_to_the_other():
    c = two()
    c.ask("ada", 2, pool="gpu")
    c.decide()
    c.ask("bob", 4, pool="gpu")
    c.at(1.0)
    c.ask("cy", 2, **EITHER)
    assert c.decide() == ["3 starts on 2 of c1"]


def test_room_that_others_take_first_in_the_preferred_pool_does_not_keep_it_waiting():
    c = two()
    c.ask("ada", 4, pool="gpu")
    c.at(1.0)
    c.ask("ada", 4, **EITHER)
    assert sorted(c.decide()) == ["1 starts on 4 of g1", "2 starts on 4 of c1"]


def test_its_slots_count_once_against_a_limit():
    c = two(users={"ada": {"limit": 4}})
    c.ask("ada", 4, **EITHER), c.ask("ada", 4, **EITHER)
    assert c.decide() == ["1 starts on 4 of g1"]
    assert c.why(2) == "gpu: next in queue; your limit of 4 is in use; cloud: next in queue; your limit of 4 is in use"
    c.ends(1)
    assert c.decide() == ["2 starts on 4 of g1"]


def test_a_guarantee_takes_slots_back_in_one_pool_and_only_without_room_in_another():
    c = two(users={"bob": {"guarantee": 4}})
    c.ask("ada", 4, pool="gpu"), c.ask("ada", 2, pool="cloud")
    c.decide()
    c.at(600.0)
    c.ask("bob", 2, **EITHER)
    assert c.decide() == ["3 starts on 2 of c1"]
    c.at(1200.0)
    c.ask("bob", 2, **EITHER)
    assert c.decide() == ["1 goes: #4.1 is within a guarantee"]


def test_slots_are_reserved_for_it_in_the_first_pool_that_can_hold_it():
    c = two(gpu=2)
    c.ask("ada", 2, pool="cloud"), c.ask("ada", 1, pool="gpu")
    c.decide()
    c.ask("bob", 4, **EITHER)
    c.at(1.0)
    c.ask("cy", 2, pool="cloud"), c.ask("cy", 1, pool="gpu")
    assert c.decide() == ["5 starts on 1 of g1"], "nothing is kept for it where it never fits"
    c.ends(1)
    assert c.decide() == ["3 starts on 4 of c1"]


def test_a_pool_where_nothing_is_started_now_is_passed_over():
    c = two()
    c.picture.closed_pools = {"gpu": "20 of 20 gangs (most_waiting) wait in the site's queue of pool gpu"}
    c.ask("ada", 4, **EITHER)
    assert c.decide() == ["1 starts on 4 of c1"]


def test_a_pool_in_whose_own_queue_gangs_wait_is_taken_only_without_room_elsewhere():
    c = two(gpu=8)
    c.ask("ada", 4, pool="gpu")
    c.decide()
    c.picture.change(RequestKey(1, 1), waiting=True)
    c.ask("bob", 4, **EITHER)
    assert c.decide() == ["2 starts on 4 of c1"]
    c.ask("bob", 4, **EITHER)
    assert c.decide() == ["3 starts on 4 of g1"]


def test_it_is_impossible_only_where_no_pool_can_hold_it():
    c = two(gpu=2)
    assert impossible(c.picture, SlotRequest(1, 1, 4, 0.0, **EITHER)) is None
    never = impossible(c.picture, SlotRequest(1, 1, 8, 0.0, **EITHER))
    assert never is not None
    assert never.largest == 4
    assert never.reason == (
        "8 slots requested; pool gpu has 2. The most for one trial there: 2. "
        "8 slots requested; pool cloud has 4. The most for one trial there: 4."
    )


def test_one_that_moves_leaves_the_other_queue_and_its_reservation():
    c = two()
    c.ask("ada", 2, pool="gpu")
    c.decide()
    c.ask("bob", 4, pool="gpu")
    c.decide()
    assert [each.key.experiment for each in c.picture.reservations] == [2]
    c.at(3600.0)
    moved = replace(c.picture.queue.requests[RequestKey(2, 1)], pool="cloud")
    c.picture.add(moved)
    assert c.picture.reservations == ()
    assert not c.picture.queue.starves(moved, c.picture.at - 1.0), "it is the head there since now"
    assert list(in_order(c.picture, "gpu")) == []
    assert c.decide() == ["2 starts on 4 of c1"]


@pytest.mark.parametrize("back", ["preempted", "withdrawn"])
def test_one_that_comes_back_or_goes_is_in_both_queues_or_in_none(back):
    c = two()
    c.ask("ada", 4, **EITHER)
    c.decide()
    c.ask("ada", 4, pool="gpu"), c.ask("ada", 4, pool="cloud")
    if back == "preempted":
        c.comes_back(1)
    else:
        c.picture.withdraw(RequestKey(1, 1))
    theirs = [[request.experiment for request in in_order(c.picture, pool)] for pool in ("gpu", "cloud")]
    assert theirs == ([[1, 2], [1, 3]] if back == "preempted" else [[2], [3]])


POOLS = ("a", "b", "c")


@given(
    st.lists(st.tuples(st.sampled_from(POOLS), st.integers(1, 4)), min_size=1, max_size=5),
    st.lists(st.tuples(st.permutations(POOLS), st.integers(1, 3), st.integers(1, 6), st.integers(0, 2)), max_size=10),
)
def test_each_starts_at_most_once_in_a_pool_of_its_own_and_none_waits_for_room_that_there_is(sizes, wanted):
    there = [
        Node(name=f"{pool}{at}", kind="cpu", address="", slots=slots, pool=pool)
        for at, (pool, slots) in enumerate(sizes)
    ]
    requests = []
    for number, (order, count, slots, priority) in enumerate(wanted):
        pools = tuple(order[:count])
        several = pools if count > 1 else ()
        requests.append(SlotRequest(number, 1, slots, float(number), pool=pools[0], pools=several, priority=priority))
    cluster, started = ClusterState(there, (), requests), Counter[int]()
    for _ in range(len(requests) + 1):
        decisions = decide(cluster)
        cluster.reservations = decisions.reservations
        for start in decisions.starts:
            started[start.request.experiment] += 1
            assert {cluster.nodes[share.node].pool for share in start.placement} == {start.request.pool}
            assert start.request.pool in (requests[start.request.experiment].pools or (start.request.pool,))
            cluster.hold(start.run(0.0))
    assert not started or max(started.values()) == 1
    assert not set(started) & {request.experiment for request in cluster.queue}
    first = min((request for request in cluster.queue), key=lambda each: (-each.priority, each.order), default=None)
    for each in first.in_each_pool if first is not None else ():
        free = sum(len(cluster.free[node.name]) for node in cluster.usable(each.pool))
        assert free < each.slots, f"{each} waits for what is free"
