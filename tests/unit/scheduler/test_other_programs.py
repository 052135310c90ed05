"""Test that gangs get no slots held by other programs, and that notebook servers among these are counted once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.resources import Holder, Node
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.other_programs import located, take_in
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.rules import Rules
from tests.support.builders import share
from tests.support.clusters import Cluster, nodes
from tests.torture.schedules import check


def server(owner: str, slots: int = 0, **fields: Any) -> Server:
    return Server(owner=owner, group=owner, since=0.0, last_activity=0.0, slots=slots, **fields)


def held(node: Node, *by: Holder) -> Node:
    return node.model_copy(update={"held_by": by})


def pod(name: str, slots: int, server: str = "") -> Holder:
    return Holder(name=f"pod {name}", slots=slots, server=server)


def with_pods(c: Cluster, *by: Holder, node: str = "n1") -> None:
    c.picture.set_node(held(c.picture.nodes[node], *by))


# What they hold


def test_a_gang_gets_no_slot_that_another_program_holds_until_it_is_gone():
    c = Cluster(*nodes(1, 4))
    with_pods(c, pod("ml/web", 3))
    take_in(c.picture, ())
    assert c.picture.free == {"n1": [0]}
    c.ask("ada", 2)
    assert c.decide() == []
    assert c.why(1) == "next in queue; 2 slots requested, 1 of 4 free"
    with_pods(c)
    take_in(c.picture, ())
    assert c.decide() == ["1 starts on 2 of n1"]


def test_it_is_charged_to_nobody_and_preempted_by_nobody():
    c = Cluster(*nodes(1, 4), groups={"vision": {"guarantee": 4}}, rules=Rules(idle_servers=1.0))
    with_pods(c, pod("ml/web", 4))
    take_in(c.picture, ())
    assert (dict(c.picture.users), dict(c.picture.groups)) == ({}, {})
    c.at(10_000)
    c.ask("ada", 2, "vision")
    assert c.decide() == []
    assert c.picture.largest_gang("local", False, frozenset()) == 4  # it waits, and is not impossible


def test_where_a_gang_is_planned_on_its_node_it_takes_as_many_slots_elsewhere_in_the_pool():
    c = Cluster(*nodes(2, 2))
    c.ask("ada", 2)
    assert c.decide() == ["1 starts on 2 of n1"]  # in truth the engine has chosen n2
    with_pods(c, pod("ml/web", 2))
    take_in(c.picture, ())
    assert c.picture.free == {"n1": [], "n2": []}
    (run,) = (run for run in c.picture.runs.values() if run.key.outside)
    assert [share.node for share in run.actual] == ["n1"]
    c.ends(1)
    take_in(c.picture, ())
    assert c.picture.free == {"n1": [], "n2": [0, 1]}


def test_a_gang_uses_nodes_that_are_there_before_those_that_an_autoscaler_adds():
    there, new = nodes(2, 4), Node(name="new-1", kind="cuda", address="", slots=8, future=True)
    c = Cluster(*there, new)
    c.ask("ada", 8)
    c.ask("ada", 8)
    assert c.decide() == ["1 starts on 4 of n1 + 4 of n2", "2 starts on 8 of new-1"]


def test_a_gang_that_waited_for_a_new_node_holds_the_slots_of_the_one_that_came():
    there, new = nodes(1, 4)[0], Node(name="new-1", kind="cuda", address="", slots=4, future=True)
    c = Cluster(there, new)
    c.ask("ada", 4)
    c.ask("bob", 4)
    assert c.decide() == ["1 starts on 4 of n1", "2 starts on 4 of new-1"]
    gang, came = RequestKey(2, 1), there.model_copy(update={"name": "n2"})
    c.picture.change(gang, waiting=True)
    c.picture.remove_node("new-1")
    c.picture.set_node(came)
    take_in(c.picture, ())
    assert c.picture.free == {"n1": [], "n2": []}  # its pods may still be on their way there
    c.picture.change(gang, waiting=False, actual=(share((0, 1, 2, 3), "n2"),))
    take_in(c.picture, ())
    assert c.picture.free == {"n1": [], "n2": []}
    assert c.picture.users["bob"].held == 4
    c.ends(2)
    take_in(c.picture, ())
    assert c.picture.free == {"n1": [], "n2": [0, 1, 2, 3]}


# Notebook servers


def test_a_server_that_is_a_pod_is_charged_once_for_what_it_holds_whatever_its_options_say():
    c = Cluster(*nodes(2, 4, pool="gpu"), users={"dave": {"limit": 4}})
    with_pods(c, pod("jhub/jupyter-dave", 3, "dave/"), node="n2")
    take_in(c.picture, [server("dave", 1)])
    assert c.picture.users["dave"].held == 3
    assert c.picture.free == {"n1": [0, 1, 2, 3], "n2": [0]}
    c.ask("dave", 2, pool="gpu")
    assert c.decide() == []
    assert c.why(1) == "next in pool gpu; your limit of 4 leaves 1"


def test_a_server_without_slots_in_its_options_is_charged_too():
    c = Cluster(*nodes(1, 4))
    with_pods(c, pod("jhub/jupyter-dave--b", 2, "dave/b"))
    take_in(c.picture, [server("dave", name="b"), server("eve")])
    assert {name: meter.held for name, meter in c.picture.users.items()} == {"dave": 2}


def test_a_pod_that_names_a_server_that_the_hub_does_not_have_charges_nobody():
    c = Cluster(*nodes(1, 4))
    with_pods(c, pod("ml/claims", 2, "dave/"))
    take_in(c.picture, [])
    assert c.picture.free == {"n1": [0, 1]}
    assert dict(c.picture.users) == {}


def test_of_two_pods_that_name_one_server_one_is_the_server_and_the_other_holds_its_slots_too():
    c = Cluster(*nodes(1, 4))
    with_pods(c, pod("jhub/jupyter-dave", 1, "dave/"), pod("ml/claims", 2, "dave/"))
    take_in(c.picture, [server("dave")])
    assert c.picture.users["dave"].held == 1
    assert c.picture.free == {"n1": [0]}


def test_on_nodes_of_cpus_a_server_is_charged_what_its_options_say():
    node = nodes(1, 8, kind="cpu")[0]
    by = held(node, pod("jhub/jupyter-dave", 1, "dave/"), pod("jhub/jupyter-eve", 1, "eve/"))
    assert [(each.owner, each.slots, each.node) for each in located([server("dave", 2), server("eve")], [by])] == [
        ("dave", 2, "n1")
    ]


def test_a_node_of_two_pools_has_the_server_in_the_pool_that_its_options_name():
    first, second = nodes(1, 4, pool="a"), nodes(1, 4, pool="b", prefix="m")
    seen = [held(each, pod("jhub/jupyter-dave", 2, "dave/")) for each in (*first, *second)]
    assert [each.pool for each in located([server("dave", 2, pool="b")], seen)] == ["b"]
    c = Cluster(*seen)
    take_in(c.picture, [server("dave", 2, pool="b")])
    assert c.picture.free == {"n1": [0, 1], "m1": [0, 1]}
    assert c.picture.users["dave"].held == 2


HOLDERS = st.lists(
    st.builds(pod, st.sampled_from(("ml/a", "ml/b", "jhub/dave")), st.integers(1, 3), st.sampled_from(("", "dave/"))),
    max_size=2,
    unique_by=lambda holder: holder.name,
)
STEP = st.one_of(
    st.tuples(st.just("pods"), st.tuples(st.sampled_from(("n1", "n2")), HOLDERS)),
    st.tuples(st.just("server"), st.booleans()),
    st.tuples(st.just("ask"), st.integers(1, 5)),
    st.tuples(st.just("end"), st.integers(0, 3)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_whatever_comes_and_goes_no_slot_is_held_twice_and_none_that_is_held_is_given_away(steps):
    c = Cluster(*nodes(2, 4))
    servers: list[Server] = []
    for nth, (what, value) in enumerate(steps):
        c.at(100.0 * (nth + 1))
        if what == "pods":
            with_pods(c, *value[1], node=value[0])
        elif what == "server":
            servers = [server("dave")] if value else []
        elif what == "ask":
            c.ask("ada", value)
        else:
            gangs = [key for key in c.picture.runs if key.is_gang]
            for key in gangs[value : value + 1]:
                c.picture.let_go(RequestKey(key.experiment, 1))
        take_in(c.picture, servers)
        before = dict(c.picture.runs)
        take_in(c.picture, servers)
        assert c.picture.runs == before, "taken in twice is taken in once"
        decisions = decide(c.picture)
        if not any(run.key.server for run in c.picture.runs.values()):
            check(c.picture, decisions)
        c.apply(decisions)
        slots = Counter((s.node, slot) for r in c.picture.runs.values() for s in r.placement for slot in s.slots)
        assert all(count == 1 for (name, _), count in slots.items() if name)
        others = sum(each.slots for node in c.picture.nodes.values() for each in node.held_by)
        gangs_hold = sum(run.slots for run in c.picture.runs.values() if run.key.is_gang)
        free = sum(map(len, c.picture.free.values()))
        assert free == max(0, 8 - others - gangs_hold) or before != dict(c.picture.runs)
        assert c.picture.users["dave"].held in (
            0,
            *(each.slots for n in c.picture.nodes.values() for each in n.held_by),
        )
