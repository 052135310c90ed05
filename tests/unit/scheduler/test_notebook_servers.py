"""Test notebook servers with slots: the hub's records, the slots that they hold, and when these are reclaimed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.servers import Server, ServerRequest, profile, server_request, servers_of
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.notebook_servers import ELSEWHERE, key, take_back_at, take_in
from kernel_backend.scheduler.requests import RequestKey
from kernel_backend.scheduler.rules import Rules
from tests.support.clusters import Cluster, nodes
from tests.torture.schedules import check


def server(owner: str, slots: int = 1, active: float = 0.0, **fields: Any) -> Server:
    given = {"group": owner, "since": 0.0} | fields
    return Server(owner=owner, slots=slots, last_activity=max(active, given["since"]), **given)


def told(name: str, options: object, **fields: Any) -> dict[str, Any]:
    """Return a server in the form of the hub's API."""
    at = "2026-11-22T14:00:00.000000Z"
    return {"name": name, "user_options": options, "started": at, "last_activity": at, "ready": True} | fields


# What the hub says


def test_a_profile_of_ours_says_how_many_and_no_word_beside_it_counts():
    assert server_request({"profile": profile(2), "slots": 0}) == ServerRequest(2)
    assert server_request({"profile": profile(4, "a100"), "pool": "cheap"}) == ServerRequest(4, "a100")
    assert server_request({"profile": profile(0)}) == ServerRequest(0)


def test_elsewhere_a_server_has_what_its_options_say_and_nothing_by_itself():
    assert server_request({"slots": "2", "pool": "a100"}) == ServerRequest(2, "a100")
    assert server_request({"slots": ["3"]}) == ServerRequest(3)  # as a form says it
    assert (
        server_request({"profile": "somebody-elses"})
        == server_request({})
        == server_request(None)
        == server_request(["slots"])
        == ServerRequest(0)
    )


@pytest.mark.parametrize("slots", [-1, 1.5, True, "many", None, [1, 2], {"a": 1}, "1e9", 10**9, "²", "٣x"], ids=repr)
def test_a_number_of_slots_that_is_none_is_refused_with_it(slots):
    with pytest.raises(InvalidRequest, match="whole number"):
        server_request({"slots": slots})


def test_servers_are_read_as_the_hub_writes_them():
    users = [
        {"name": "dave", "groups": ["vision"], "servers": {"": told("", {"slots": 2}), "b": told("b", {"slots": 1})}},
        {"name": "eve", "groups": [], "servers": {"": told("", {"profile": "daylight-4-a100"})}},
        {"name": "cy", "servers": {"": told("", {}), "off": told("off", {"slots": 1}, ready=False, stopped=True)}},
        {"name": "di"},
    ]
    found = servers_of(users)
    assert [(each.full_name, each.group, each.slots, each.pool) for each in found] == [
        ("cy/", "cy", 0, "local"),
        ("dave/", "vision", 2, "local"),
        ("dave/b", "vision", 1, "local"),
        ("eve/", "eve", 4, "a100"),
    ]
    assert found[1].since == found[1].last_activity == 1795356000.0


def test_one_counts_from_when_it_is_there_until_it_is_gone():
    def counts(**state: Any) -> bool:
        return bool(servers_of([{"name": "dave", "servers": {"": told("", {"slots": 1}, **state)}}]))

    assert not counts(ready=False, pending="spawn")  # it may be refused yet
    assert counts(ready=True, pending=None)
    assert counts(ready=False, pending="stop")
    assert not counts(ready=False, pending=None)


def test_what_cannot_be_understood_asks_for_no_slots_and_keeps_no_other_from_being_counted():
    garbage = [{"slots": "many"}, {"slots": [[]]}, "text", 7]
    servers = {str(nth): told(str(nth), options) for nth, options in enumerate(garbage)}
    servers["when"] = told("when", {"slots": 1}, started="yesterday")
    servers["never"] = told("never", {"slots": 1}, started=None, last_activity=None)
    servers["good"] = told("good", {"slots": 1})
    found = servers_of([{"name": "dave", "servers": servers}])
    assert {each.name: each.slots for each in found} == {"0": 0, "1": 0, "2": 0, "3": 0, "good": 1}


# What they hold


def test_a_server_holds_slots_that_no_gang_gets():
    c = Cluster(*nodes(1, 4))
    take_in(c.picture, [server("dave", 3)])
    assert c.picture.free == {"n1": [0]}
    assert c.ask("ada", 2) == 1
    assert c.decide() == []
    assert c.why(1) == "next in queue; 2 slots requested, 1 of 4 free"
    take_in(c.picture, [])
    assert c.decide() == ["1 starts on 2 of n1"]


def test_it_is_charged_to_its_owner_and_counts_towards_the_limit():
    c = Cluster(*nodes(1, 8), users={"dave": {"limit": 4}})
    take_in(c.picture, [server("dave", 3, group="vision")])
    c.ask("dave", 2, "vision")
    assert c.decide() == []
    assert c.why(1) == "next in queue; your limit of 4 leaves 1"
    assert c.picture.groups["vision"].held == 3


def test_it_is_on_one_node_the_tightest_that_has_room_and_stays_there():
    c = Cluster(*nodes(3, 4))
    c.ask("ada", 2, one_node=True)
    c.decide()
    take_in(c.picture, [server("dave", 2)])
    (held,) = [run for run in c.picture.runs.values() if run.key.server]
    assert held.by_node == {"n1": 2}
    c.ends(1)
    take_in(c.picture, [server("dave", 2, active=50.0)])
    assert c.picture.runs[held.key].placement == held.placement
    assert c.picture.runs[held.key].last_activity == 50.0


def test_what_it_has_beyond_what_is_free_is_charged_and_held_as_soon_as_it_is_free():
    c = Cluster(*nodes(1, 4))
    c.ask("ada", 3)
    c.decide()
    dave = server("dave", 2)
    take_in(c.picture, [dave])
    assert c.picture.free == {"n1": []}
    assert c.picture.users["dave"].held == 2
    assert c.picture.runs[key(dave, 1)].placement[0].node == ELSEWHERE
    c.ends(1)
    c.ask("ada", 4)
    take_in(c.picture, [dave])
    assert c.picture.free == {"n1": [0, 1]}
    assert c.decide() == []


def test_a_server_of_a_pool_that_is_none_of_ours_is_charged_alone():
    c = Cluster(*nodes(1, 4))
    take_in(c.picture, [server("dave", 2, pool="elsewhere")])
    assert c.picture.free == {"n1": [0, 1, 2, 3]}
    assert c.picture.users["dave"].held == 2
    c.ask("ada", 4)
    assert c.decide() == ["1 starts on 4 of n1"]


NAMES = ("dave", "eve", "cy")
SERVERS = st.builds(
    server,
    st.sampled_from(NAMES),
    st.integers(1, 5),
    name=st.sampled_from(("", "b")),
    group=st.sampled_from(("vision", "speech")),
    since=st.sampled_from((0.0, 10.0)),
    node=st.sampled_from((None, "n1", "gone")),
    pool=st.sampled_from(("local", "local", "other")),
    active=st.floats(0, 500),
)
STEP = st.one_of(
    st.tuples(st.just("servers"), st.lists(SERVERS, max_size=5)),
    st.tuples(st.just("ask"), st.tuples(st.sampled_from(NAMES), st.integers(1, 6))),
    st.tuples(st.just("end"), st.integers(0, 5)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=12), st.sampled_from((None, 60.0)))
def test_whatever_comes_and_goes_no_slot_is_held_twice_and_each_is_charged(steps, idle):
    rules = Rules(idle_servers=idle)
    c = Cluster(*nodes(2, 4), groups={"vision": {"guarantee": 3}}, users={"cy": {"limit": 4}}, rules=rules)
    present: dict[str, Server] = {}
    for nth, (what, value) in enumerate(steps):
        c.at(100.0 * (nth + 1))
        if what == "servers":
            present = {each.full_name: each for each in value}
        elif what == "ask":
            owner, slots = value
            c.ask(owner, slots, "vision" if owner == "cy" else "", one_node=slots == 1)
        elif len(c.running()) > value:
            c.ends(c.running()[value])
        take_in(c.picture, present.values())
        before = dict(c.picture.runs)
        take_in(c.picture, present.values())
        assert c.picture.runs == before, "taken in twice is taken in once"
        decisions = decide(c.picture)
        servers = [each.run for each in decisions.preempts if each.run.key.server]
        assert all(idle and run.last_activity + idle <= c.picture.at for run in servers)
        if not any(run.key.server for run in c.picture.runs.values()):
            check(c.picture, decisions)
        c.apply(decisions)
        held = Counter((s.node, slot) for r in c.picture.runs.values() for s in r.placement for slot in s.slots)
        assert all(count == 1 for (name, _), count in held.items() if name != ELSEWHERE)
        for node in c.picture.nodes.values():
            taken = {slot for name, slot in held if name == node.name}
            assert taken.isdisjoint(c.picture.free[node.name])
            assert taken | set(c.picture.free[node.name]) == set(range(node.slots))
        for name in NAMES:
            theirs = sum(run.slots for run in c.picture.runs.values() if run.owner == name)
            assert c.picture.users[name].held == theirs
            running = sum(r.slots for r in c.picture.runs.values() if r.owner == name and not r.key.server)
            assert theirs == running + sum(each.slots for each in present.values() if each.owner == name)


# When they are taken back


def wanted(rules: Rules, *servers: Server, at: float = 4000.0) -> Cluster:
    """Return a node of 4 slots with these servers; vision has a guarantee of 2, and ada of vision requests slots."""
    c = Cluster(*nodes(1, 4), groups={"vision": {"guarantee": 2}}, rules=rules)
    take_in(c.picture, servers)
    c.at(at)
    c.ask("ada", 2, "vision")
    return c


def test_without_a_rule_no_server_is_ever_taken_back():
    c = wanted(Rules(), server("dave", 4), at=10**7)
    assert c.decide() == []
    assert take_back_at(c.picture, server("dave")) is None


def test_one_that_is_idle_for_long_enough_goes_for_an_ask_within_a_guarantee():
    c = wanted(Rules(idle_servers=3600), server("dave", 4))
    assert c.decide() == ["notebook server dave/ goes: #1.1 is within a guarantee"]
    assert take_back_at(c.picture, server("dave", active=100.0)) == 3700.0


def test_one_in_use_stays():
    c = wanted(Rules(idle_servers=3600), server("dave", 4, active=500.0))
    assert c.decide() == []


def test_one_within_its_owners_own_guarantee_stays():
    c = Cluster(
        *nodes(1, 4), groups={"vision": {"guarantee": 2}, "speech": {"guarantee": 2}}, rules=Rules(idle_servers=60)
    )
    take_in(c.picture, [server("dave", 2, group="speech"), server("eve", 2, group="others")])
    c.at(4000)
    c.ask("ada", 2, "vision")
    (preempt,) = decide(c.picture).preempts
    assert preempt.run.key == RequestKey(0, 0, 0, "eve/")
    assert str(preempt.run.key) == "notebook server eve/"


def test_an_idle_server_goes_before_a_training_that_works():
    c = Cluster(*nodes(1, 4), groups={"vision": {"guarantee": 2}}, rules=Rules(idle_servers=60))
    take_in(c.picture, [server("dave", 2)])
    c.ask("bob", 2)
    assert c.decide() == ["1 starts on 2 of n1"]
    c.at(4000)
    c.ask("ada", 2, "vision")
    assert c.decide() == ["notebook server dave/ goes: #2.1 is within a guarantee"]


def test_nobody_elses_ask_takes_a_server_back():
    c = Cluster(*nodes(1, 4), rules=Rules(idle_servers=60))
    take_in(c.picture, [server("dave", 4)])
    c.at(10**6)
    c.ask("ada", 2)
    assert c.decide() == []


def test_one_that_was_asked_to_go_is_asked_once():
    c = wanted(Rules(idle_servers=3600), server("dave", 4))
    assert len(c.decide()) == 1
    c.at(4010)
    take_in(c.picture, [server("dave", 4)])
    assert c.decide() == []
    take_in(c.picture, [])
    assert c.decide() == ["1 starts on 2 of n1"]


def test_a_time_that_makes_every_server_idle_is_refused():
    with pytest.raises(ValueError, match="idle_servers of 0 s"):
        Rules(idle_servers=0)


def test_a_limit_that_is_exceeded_has_trainings_step_aside_and_stops_no_server():
    c = Cluster(*nodes(1, 8), users={"dave": {"limit": 8}}, rules=Rules(idle_servers=60))
    take_in(c.picture, [server("dave", 4)])
    c.ask("dave", 4)
    c.decide()
    c.at(4000)
    c.picture.users.set("dave", Quota(limit=4))
    assert c.decide() == ["1 goes: the limit of user dave is below what is held"]
    c.ends(1)
    c.picture.users.set("dave", Quota(limit=2))
    assert c.decide() == []
