"""Test that gangs go to nodes that have their data, and that nothing else of a decision changes by that."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Decisions, Start
from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.state import ClusterState
from tests.support.clusters import Cluster, nodes


def test_among_equal_nodes_the_one_with_the_data_goes_first_and_a_tighter_one_before_it():
    cluster = Cluster(*nodes(3, 4))
    cluster.ask("ada", 2, preferred=frozenset({"n3"}))
    assert cluster.decide() == ["1 starts on 2 of n3"]
    cluster.ask("ada", 2, preferred=frozenset({"n2"}))
    assert cluster.decide() == ["2 starts on 2 of n3"]  # and leaves two nodes whole


def test_gangs_that_share_a_node_go_together():
    cluster = Cluster(*nodes(3, 4))
    for _ in range(3):
        cluster.ask("ada", 2, preferred=frozenset({"n3"}))
    assert cluster.decide() == ["1 starts on 2 of n3", "2 starts on 2 of n3", "3 starts on 2 of n2"]


def test_parts_of_a_gang_go_where_its_data_is_and_never_to_an_excluded_node_or_another_kind():
    cluster = Cluster(*nodes(4, 4), *nodes(1, 4, kind="rocm", prefix="r"))
    cluster.ask("ada", 8, preferred=frozenset({"n3", "n4", "r1"}), excluded=frozenset({"n4"}))
    assert cluster.decide() == ["1 starts on 4 of n3 + 4 of n2"]


def test_what_is_reserved_on_a_node_stays_there():
    cluster = Cluster(*nodes(2, 4))
    for _ in range(4):
        cluster.ask("bob", 2)
    cluster.decide()
    cluster.ask("cy", 4, one_node=True)
    cluster.decide()
    (reserved,) = cluster.picture.reservations
    cluster.at(600)
    cluster.ends(1, 3)
    cluster.ask("ada", 2, preferred=frozenset({str(reserved.node)}))
    assert reserved.node not in " ".join(cluster.decide())


def random_cluster(draws: random.Random, preferring: bool) -> Cluster:
    """Return a cluster in the middle of its life, with requests that wait; some of them may have data on nodes."""
    sizes = [draws.choice((2, 4, 8)) for _ in range(2)]
    known = [*nodes(4, sizes[0]), *nodes(3, sizes[1], kind="rocm", prefix="r")]
    cluster = Cluster(*known, users={"ada": {"guarantee": 4}, "bob": {"limit": 12}})
    names = [node.name for node in known]

    def ask() -> None:
        preferred = frozenset(draws.sample(names, draws.randint(0, 3)))
        cluster.ask(
            draws.choice(("ada", "bob", "cy")),
            draws.randint(1, 9),
            one_node=draws.random() < 0.3,
            excluded=frozenset(draws.sample(names, draws.choice((0, 0, 0, 1)))),
            larger=draws.choice(((), (), (12,))),
            preemptible=draws.random() < 0.2,
            preferred=preferred if preferring else frozenset(),
        )

    for _ in range(draws.randint(0, 8)):
        ask()
    held = decide(without(cluster.picture))  # what runs is the same with and without data
    cluster.apply(held)
    cluster.at(700)
    for key in sorted(cluster.picture.runs):
        if draws.random() < 0.5:
            cluster.ends(key.experiment)
    for _ in range(draws.randint(1, 6)):
        ask()
    return cluster


def without(state: ClusterState) -> ClusterState:
    """Return the same state with requests that have no data anywhere; it is changed in place."""
    for request in list(state.queue):
        state.add(replace(request, preferred=frozenset()))
    return state


def told(decisions: Decisions) -> tuple[object, ...]:
    """Return all of a decision but the names of the nodes on which gangs start."""
    starts = [
        (each.request.key, [count for _, count in each.by_node], each.placement[0].kind, each.passed, each.reservation)
        for each in decisions.starts
    ]
    gone = [(each.run.key, each.reason, each.change, each.freed) for each in decisions.preempts]
    return starts, gone, decisions.reservations


def left(state: ClusterState, starts: tuple[Start, ...]) -> Counter[tuple[str, int, int]]:
    """Return how many nodes of a kind and size have how many slots left; no slot is given twice."""
    free = {name: set(slots) for name, slots in state.free.items()}
    for each in starts:
        for share in each.placement:
            assert free[share.node] >= set(share.slots)
            free[share.node] -= set(share.slots)
    return Counter((state.nodes[name].kind, state.nodes[name].slots, len(slots)) for name, slots in free.items())


def near(start: Start, request: SlotRequest) -> int:
    return sum(count for name, count in start.by_node if name in request.preferred)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_the_same_gangs_start_on_nodes_that_are_as_good(seed):
    plain, data = (random_cluster(random.Random(seed), each) for each in (False, True))
    before, after = decide(plain.picture), decide(data.picture)
    assert told(before) == told(after)
    assert left(plain.picture, before.starts) == left(data.picture, after.starts)
    for one, other in zip(before.starts, after.starts, strict=True):
        assert not other.request.excluded & {name for name, _ in other.by_node}
        assert near(other, other.request) >= near(one, other.request)
