"""Test quotas over HTTP, as seen and changed by two users of a group, one of another and an admin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from kernel_backend.client import Client
from kernel_backend.engines.base import GangStatus
from kernel_backend.errors import Conflict, Forbidden, InvalidRequest, NotFound
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.quotas import Quota, SlotHours
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.resources import Node
from kernel_backend.model.search.domains import Choices
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.states import Outcome
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import Extension
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine, archive, submit, token_of
from tests.support.world import until

NODES = [Node(name=name, kind="cuda", address=f"10.0.0.{slots}", slots=slots) for name, slots in (("n1", 4), ("n2", 8))]

DAVE, DANIELLE = Person(name="dave", groups=("vision",)), Person(name="danielle", groups=("vision", "speech"))
EVE, ADA = Person(name="eve", groups=("robots",)), Person(name="ada", admin=True)


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    hub = FakeHub()
    hub.people = {each.name: each for each in (DAVE, DANIELLE, EVE, ADA)}
    served = Served(tmp_path, StillEngine(NODES), identity=hub)
    yield served
    served.stop()


@pytest.fixture
def person(served: Served) -> Iterator[Callable[[str], Client]]:
    clients: dict[str, Client] = {}

    def of(name: str) -> Client:
        return clients.setdefault(name, served.client(name))

    yield of
    for client in clients.values():
        client.close()


def train(client: Client, slots: int, **config: Any) -> Overview:
    return submit(client, slots=slots, **config)


def starts(client: Client, overview: Overview) -> None:
    number = overview.experiment.number
    until(lambda: client.experiment(number).state == "starting", f"#{number} starts")


def waits(client: Client, overview: Overview, reason: str) -> None:
    def said() -> bool:
        wait = client.experiment(overview.experiment.number).wait
        return wait is not None and reason in wait.reason

    until(said, f"#{overview.experiment.number} waits: {reason}")


# Quotas


def test_a_limit_is_in_force_at_the_next_decision_and_so_is_its_end(person):
    ada, dave = person("ada"), person("dave")
    account = ada.set_quota("user", "dave", {"limit": 4})
    assert (account.quota.limit, account.changed, account.given) == (4, {"limit": 4}, None)
    starts(dave, train(dave, 4))
    second = train(dave, 2)
    waits(dave, second, "your limit of 4 is in use")
    ada.set_quota("user", "dave", {"limit": None})
    starts(dave, second)
    assert ada.clear_quota("user", "dave").quota == Quota()


def test_numbers_that_are_set_here_win_over_the_hubs_one_by_one(served, person):
    members = {"dave": ("vision",), "danielle": ("vision", "speech")}
    served.run(_give(served, members, {"vision": Quota(limit=16, guarantee=8, weight=2.0), "speech": None}))
    ada = person("ada")
    account = ada.set_quota("group", "vision", {"limit": 10, "slot_hours": "500/7d"})
    assert account.quota == Quota(
        limit=10, guarantee=8, weight=2.0, slot_hours=SlotHours(hours=500.0, window=7 * 86400.0)
    )
    assert account.given == Quota(limit=16, guarantee=8, weight=2.0)
    assert account.members == ("danielle", "dave")
    account = ada.set_quota("group", "vision", {"limit": "none"})
    assert account.quota.limit is None
    account = ada.set_quota("group", "vision", {"limit": None})
    assert account.quota.limit == 16
    assert account.changed == {"slot_hours": {"hours": 500.0, "window": 604800.0}}
    # The hub comes to give less than what is guaranteed here.
    ada.set_quota("group", "vision", {"guarantee": 12})
    served.run(_give(served, members, {"vision": Quota(limit=4)}))
    (account,) = [each for each in ada.accounts() if each.name == "vision"]
    assert (account.quota.limit, account.quota.guarantee) == (4, 4)
    assert account.warnings[0] == "a guarantee of 12 is more than the limit of 4: it counts as 4"


async def _give(served: Served, members: dict[str, tuple[str, ...]], groups: dict[str, Quota | None]) -> None:
    served.service.quotas.learn(Directory(members=members, groups=groups))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": -1}, "limit -1: must be at least 0"),
        ({"limit": 1.5}, "limit 1.5: must be a whole number"),
        ({"limit": True}, "limit True: must be a number"),
        ({"limit": "8"}, "limit 8: must be a number"),
        ({"limit": 10**400}, "limit 1000.*: must be at most 1,000,000"),
        ({"limit": 1e9}, "limit 1000000000.0: must be at most 1,000,000"),
        ({"weight": 0}, "weight 0: must be greater than 0"),
        ({"weight": "none"}, "weight none: it is a number"),
        ({"priority": -2_000_000}, "priority -2000000: must be at most 1,000,000"),
        ({"max_slots_per_trial": 0}, "max-slots-per-trial 0: must be at least 1"),
        ({"slot_hours": "500/7y"}, "'500/7y' is no number of slot-hours in a window: write 500/7d"),
        ({"slot_hours": {"hours": -1, "window": 5}}, "slot-hours .*must be greater than 0"),
        ({"slot_hours": {"hours": 1e12, "window": 5}}, "slot-hours .*must be at most"),
        ({"slot_hours": [1]}, "slot-hours"),
        ({"storage": "much"}, "storage much: must be a size such as 200MB, 500GB or 2TB"),
        ({"storage": 0}, "storage 0: must be a size"),
        ({"storage": True}, "storage True: must be a size"),
        ({"storage": 1.5}, "storage 1.5: must be a size"),
        ({"storage": 1e300}, r"storage 1e\+300: must be a size"),
        ({"storage": "99999999999999TB"}, "storage 9+TB: must be a size"),
        ({"limits": 8}, r"a quota has no 'limits' \(did you mean limit\?\); it has weight, guarantee"),
        ({"guarantee": 8, "limit": 4}, "a guarantee of 8 is more than the limit of 4"),
        ({}, "nothing was given to set"),
    ],
)
def test_numbers_that_cannot_be_are_refused_with_the_value_and_nothing_changes(person, given, said):
    ada = person("ada")
    ada.set_quota("user", "dave", {"limit": 6})
    with pytest.raises(InvalidRequest, match=said):
        ada.set_quota("user", "dave", given)
    (account,) = [each for each in ada.accounts() if each.name == "dave"]
    assert account.changed == {"limit": 6}
    assert len(ada.audit()) == 1


def test_a_body_that_is_no_object_is_refused(served):
    for body in (b"", b"{", b"[1]", b"null", b"\xff", b"[" * 100_000, b'{"limit": NaN}', b'{"limit": Infinity}'):
        headers = {"Authorization": "Bearer ada"}
        url = f"{served.url}/api/accounts/user/dave/quota"
        answer = httpx.put(url, content=body, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest"), body[:20]


def test_names_are_what_they_are(person):
    ada = person("ada")
    for name in ("dave@example.org", "/lab/vision", "a b", "Ünï", "..", "%41", "x?y#z", "<b>"):
        assert ada.set_quota("group", name, {"limit": 3}).name == name
        assert name in {each.name for each in ada.accounts()}
        assert ada.usage("group", name).quota.limit == 3
        assert ada.clear_quota("group", name).changed == {}


def test_a_name_that_cannot_be_shown_is_refused(person):
    for name in ("a\nb", "\x1b[31mred", "x" * 256):
        with pytest.raises(InvalidRequest, match="is no name: up to 255 printable characters"):
            person("ada").set_quota("user", name, {"limit": 3})


def test_what_the_hub_says_while_something_is_set_is_not_lost(served, person):
    ada = person("ada")
    for limit in range(1, 21):
        served.run(_give(served, {"dave": ("vision",)}, {"vision": Quota(limit=limit)}))
        account = ada.set_quota("group", "vision", {"weight": limit})
        assert (account.quota.limit, account.quota.weight) == (limit, limit)


def test_a_name_that_nobody_has_is_told_with_the_nearest(served, person):
    served.run(_give(served, {"danielle": ("vision",), "dave": ()}, {"vision": None}))
    ada = person("ada")
    assert ada.set_quota("user", "daniele", {"limit": 1}).warnings == (
        "no user of this name is known yet (did you mean danielle?)",
    )
    assert ada.set_quota("user", "danielle", {"limit": 1}).warnings == ()


def test_guarantees_beyond_what_there_is_are_taken_with_a_warning(served, person):
    served.run(_give(served, {"dave": ("vision",), "eve": ()}, {"vision": Quota(guarantee=8)}))
    ada = person("ada")
    assert ada.set_quota("user", "dave", {"guarantee": 4}).warnings == ()  # a part of his group's
    (said,) = ada.set_quota("user", "eve", {"guarantee": 5}).warnings
    assert said.startswith("guarantees add up to 13 slots, and there are 12: not all can have theirs at once: ")
    assert said.endswith(": group vision (8), user eve (5)")


def test_both_the_users_and_the_groups_numbers_bind(person):
    ada, dave, danielle = person("ada"), person("dave"), person("danielle")
    ada.set_quota("group", "vision", {"limit": 6})
    ada.set_quota("user", "danielle", {"limit": 3})
    starts(dave, train(dave, 4))
    waits(danielle, train(danielle, 3), "the limit of 6 of group vision leaves 2")
    starts(danielle, train(danielle, 2, group="speech"))
    waits(danielle, train(danielle, 2, group="speech"), "your limit of 3 leaves 1")
    held = {(each.kind, each.name): each.use.held for each in danielle.me().accounts}
    assert held == {("user", "danielle"): 2, ("group", "vision"): 4, ("group", "speech"): 2}


def test_a_group_that_is_gone_goes_on_for_those_that_run(served, person):
    served.run(_give(served, {"dave": ("vision",)}, {"vision": Quota(limit=4)}))
    dave, ada = person("dave"), person("ada")
    starts(dave, train(dave, 4))
    served.run(_give(served, {"dave": ()}, {}))
    starts(dave, train(dave, 4))  # its limit is gone with it
    (account,) = [each for each in ada.accounts() if (each.kind, each.name) == ("group", "vision")]
    assert (account.use.held, account.given) == (8, None)


# Who may


def test_one_sees_ones_own_account_and_ones_groups_and_an_admin_sees_all(person):
    ada, dave, eve = person("ada"), person("dave"), person("eve")
    starts(dave, train(dave, 1))
    starts(eve, train(eve, 1))
    assert len(ada.accounts()) == 5
    assert [(each.kind, each.name) for each in ada.accounts()] == [
        *(("user", name) for name in ("ada", "dave", "eve")),
        *(("group", name) for name in ("robots", "vision")),
    ]
    assert [(each.kind, each.name) for each in dave.accounts()] == [("user", "dave"), ("group", "vision")]
    me = dave.me()
    assert (me.person.name, me.person.admin) == ("dave", False)
    assert [(each.kind, each.name) for each in me.accounts] == [("user", "dave"), ("group", "vision")]
    assert dave.usage("group", "vision").held[-1] > 0
    with pytest.raises(NotFound):
        dave.usage("group", "robots")
    with pytest.raises(NotFound):
        dave.usage("user", "eve")


def test_only_admins_change_what_all_share_and_leave_no_trace_otherwise(person):
    dave, ada = person("dave"), person("ada")
    number = train(dave, 4).experiment.number
    attempts = (
        lambda: dave.set_quota("user", "dave", {"limit": 100}),
        lambda: dave.clear_quota("group", "vision"),
        lambda: dave.drain("n1"),
        lambda: dave.undrain("n1"),
        lambda: dave.drain("no such node"),
        lambda: dave.put_first(number),
        lambda: dave.audit(),
    )
    for attempt in attempts:
        with pytest.raises(Forbidden, match="dave is no admin"):
            attempt()
    assert ada.audit() == []


def test_every_change_is_a_deed_with_before_and_after(person):
    ada, dave = person("ada"), person("dave")
    trained = train(dave, 12)
    starts(dave, trained)
    number = trained.experiment.number
    ada.set_quota("user", "dave", {"limit": 4, "weight": 2})
    ada.set_quota("user", "dave", {"limit": 4})  # nothing has changed
    ada.clear_quota("user", "dave")
    ada.drain("n2")
    ada.drain("n2")
    ada.undrain("n2")
    ada.set_priority(number, 7)
    ada.put_first(number)
    ada.stop(number)
    told = [(each.who, each.act, each.on, each.detail) for each in reversed(ada.audit())]
    assert told == [
        ("ada", "quota", "user dave", "weight 1 -> 2, limit none -> 4"),
        ("ada", "quota", "user dave", "weight 2 -> 1, limit 4 -> none"),
        ("ada", "drain", "node n2", "1 gang there"),
        ("ada", "undrain", "node n2", "1 gang there"),
        ("ada", "priority", f"#{number}", "priority 0 -> 7, of dave"),
        ("ada", "first", f"#{number}", "priority 7 -> first, of dave"),
        ("ada", "stop", f"#{number}", "of dave"),
    ]
    assert [each.act for each in ada.audit(limit=2)] == ["stop", "first"]
    assert [each.act for each in ada.audit(before=3)] == ["quota", "quota"]


def test_two_admins_at_once_never_make_a_guarantee_above_a_limit(person):
    from concurrent.futures import ThreadPoolExecutor

    def change(given: dict[str, int]) -> bool:
        try:
            person("ada").set_quota("user", "dave", given)
            return True
        except InvalidRequest:
            return False

    person("ada").me()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            done = list(pool.map(change, [{"limit": 4}, {"guarantee": 8}]))
            assert sorted(done) == [False, True]
            person("ada").clear_quota("user", "dave")


def test_what_an_admin_does_to_anothers_search_is_written_down_and_what_its_owner_does_is_not(served, person):
    ada, dave = person("ada"), person("dave")
    space = Space(parameters=(Parameter(name="lr", domain=Choices(values=[0.1, 0.2])),))
    id, data = archive()
    dave.upload_snapshot(id, data)
    search = Search(method="random", trials=4, parallel=1)
    asked = Submission(snapshot=id, config=Config(search=search), space=space, python="/usr/bin/python3", cwd="/")
    number = dave.submit(asked).experiment.number
    until(lambda: dave.experiment(number).trials, "it has a trial")
    for who in (dave, ada):
        who.extend(number, Extension(trials=9 if who is ada else 8))
        who.promote(number, 1)
        who.pause(number)
        who.resume(number)
    ada.prune(number, 1)
    assert [(each.act, each.on, each.detail) for each in reversed(ada.audit())] == [
        ("extend", f"#{number}", "trials 9, of dave"),
        ("promote", f"#{number}.1", "of dave"),
        ("pause", f"#{number}", "of dave"),
        ("resume", f"#{number}", "of dave"),
        ("prune", f"#{number}.1", "of dave"),
    ]


# The queue


def test_the_queue_is_in_the_order_of_turns_and_hides_what_is_not_ones_own(person):
    ada, dave, danielle, eve = (person(name) for name in ("ada", "dave", "danielle", "eve"))
    starts(dave, train(dave, 12))
    first, second, third = train(eve, 4), train(danielle, 4), train(dave, 4)
    until(lambda: len(ada.queue()) == 3, "all wait")
    order = [each.experiment for each in ada.queue()]
    assert order[0] == first.experiment.number
    assert set(order[1:]) == {second.experiment.number, third.experiment.number}
    assert [each.place for each in ada.queue()] == [1, 2, 3]
    seen = dave.queue()
    assert [(each.owner, each.group, each.experiment, each.name) for each in seen[:1]] == [("", "robots", None, None)]
    assert seen[0].wait is None
    assert {each.owner for each in seen[1:]} == {"dave", "danielle"}
    assert all(each.wait and "in pool" not in each.wait.reason and each.name == "digits" for each in seen[1:])
    assert [each.experiment is None for each in eve.queue()] == [False, True, True]


def test_an_admin_puts_an_ask_first_and_a_priority_takes_it_back(person):
    ada, dave, eve = (person(name) for name in ("ada", "dave", "eve"))
    starts(dave, train(dave, 12))
    before, late = train(eve, 12).experiment.number, train(dave, 12).experiment.number
    until(lambda: [each.experiment for each in ada.queue()] == [before, late], "both wait")
    assert ada.put_first(late).experiment.priority is not None
    assert [each.experiment for each in ada.queue()] == [late, before]
    ada.put_first(before)  # who comes last is first
    assert [each.experiment for each in ada.queue()] == [before, late]
    ada.set_priority(before, 0)
    assert [each.experiment for each in ada.queue()] == [late, before]


def test_what_an_admin_has_done_to_a_turn_is_taken_back_without_a_trace(person):
    ada, dave, eve = (person(name) for name in ("ada", "dave", "eve"))
    starts(dave, train(dave, 12))
    before, late = train(eve, 12).experiment.number, train(dave, 12, priority=-3).experiment.number
    until(lambda: [each.experiment for each in ada.queue()] == [before, late], "both wait")
    asked = ada.experiment(late).experiment
    assert [each.by_admin for each in ada.queue()] == [False, False]
    place = ada.put_first(late).experiment.priority
    assert [(each.experiment, each.by_admin) for each in ada.queue()] == [(late, True), (before, False)]
    assert ada.set_priority(late, None).experiment == asked
    assert ada.set_priority(late, None).experiment == asked  # which is as it was, and no deed
    assert [(each.experiment, each.by_admin) for each in ada.queue()] == [(before, False), (late, False)]
    ada.put_first(late)
    ada.put_first(before)
    ada.put_first(late)
    assert ada.set_priority(late, place).experiment.priority == place  # at the front as before, and not ahead of all
    assert [each.experiment for each in ada.queue()] == [before, late]
    with pytest.raises(Forbidden, match="taken back by admins"):
        dave.set_priority(late, None)
    with pytest.raises(InvalidRequest, match="must be from -1000 to 1000"):
        dave.set_priority(late, place)
    told = [(each.act, each.detail) for each in reversed(ada.audit())][:3]
    assert told == [
        ("first", "priority -3 -> first, of dave"),
        ("priority", "priority first -> -3 as requested, of dave"),
        ("first", "priority -3 -> first, of dave"),
    ]


def test_owners_move_their_own_within_their_quota_and_below_an_admins_word(person):
    ada, dave, danielle, eve = (person(name) for name in ("ada", "dave", "danielle", "eve"))
    starts(eve, train(eve, 12))
    number = train(dave, 12).experiment.number
    with pytest.raises(Forbidden, match="priority 1: you may request 0 at most; an admin may give you more"):
        dave.set_priority(number, 1)
    assert dave.set_priority(number, -5).experiment.config.priority == -5
    with pytest.raises(Forbidden, match=f"experiment #{number} is dave's"):
        danielle.set_priority(number, -9)
    with pytest.raises(NotFound):
        eve.set_priority(number, -9)
    with pytest.raises(NotFound):
        eve.put_first(number)
    with pytest.raises(InvalidRequest, match="priority 1001: must be from -1000 to 1000"):
        ada.set_priority(number, 1001)
    ada.set_quota("user", "dave", {"priority": 5})
    assert dave.set_priority(number, 5).experiment.config.priority == 5
    ada.set_priority(number, -1)
    with pytest.raises(Forbidden, match=f"an admin gave #{number} priority -1: you may lower it"):
        dave.set_priority(number, 3)
    assert dave.set_priority(number, -2).experiment.priority == -2
    dave.stop(number)
    with pytest.raises(Conflict, match="it waits for nothing"):
        until(lambda: dave.set_priority(number, -3) is None, "it has ended")


# Nodes and pools


def test_a_drained_node_gets_nothing_new_and_keeps_what_it_has(person):
    ada, dave, eve = person("ada"), person("dave"), person("eve")
    first = train(dave, 4)
    starts(dave, first)
    used = {each.name: each for each in dave.nodes()}
    assert (used["n1"].used, used["n1"].pool, used["n1"].address, used["n1"].drained) == (4, "local", "10.0.0.4", False)
    assert [(run.experiment, run.trial, run.slots, run.owner) for run in used["n1"].runs] == [(1, 1, 4, "dave")]
    (run,) = next(each for each in eve.nodes() if each.name == "n1").runs
    assert (run.experiment, run.trial, run.slots, run.owner, run.group) == (None, None, 4, "", "vision")
    assert ada.drain("n2").drained
    second = train(eve, 2)
    waits(eve, second, "8 slots drained or away")
    ada.undrain("n2")
    starts(eve, second)
    with pytest.raises(NotFound, match="there is no node n3; there are n1, n2"):
        ada.drain("n3")


def lose(served: Served, key: AttemptId) -> None:
    """Let an attempt be lost with its node."""
    token_of(served, key)
    served.engine.ended[key] = GangStatus(key=key, phase="ended", outcome=Outcome.LOST)


def suspects(client: Client) -> dict[str, str]:
    """Return the reasons why nodes are suspect."""
    return {each.name: each.suspicion.reason for each in client.nodes() if each.suspicion is not None}


def test_a_node_that_loses_two_attempts_is_left_out_until_an_admin_trusts_it_also_after_a_restart(served, person):
    dave = person("dave")
    waiting = train(dave, 8)
    lose(served, AttemptId(1, 1, 1))
    token_of(served, AttemptId(1, 1, 2))
    assert suspects(dave) == {}
    lose(served, AttemptId(1, 1, 2))
    waits(dave, waiting, "8 slots drained, suspect or away")
    reason = "2 attempts were lost there within an hour: its launcher vanished without a record"
    assert suspects(dave) == {"n2": reason}
    assert {each.name: each.usable for each in dave.nodes()} == {"n1": True, "n2": False}
    served.run(served._stop())
    served.port = 0
    served.run(served._start())
    ada, dave = served.client("ada"), served.client("dave")
    assert suspects(dave) == {"n2": reason}
    waits(dave, waiting, "8 slots drained, suspect or away")
    with pytest.raises(Forbidden, match="drained by admins"):
        dave.undrain("n2")
    assert ada.undrain("n2").suspicion is None
    starts(dave, waiting)
    assert [(each.act, each.on, each.detail) for each in ada.audit()] == [
        ("trust", "node n2", f"it was suspect: {reason}")
    ]


def test_a_pool_tells_its_engine_and_what_of_it_is_in_use(person):
    dave = person("dave")
    starts(dave, train(dave, 8))
    train(dave, 8)
    until(lambda: dave.pools()[0].waiting == 1, "one waits")
    (pool,) = dave.pools()
    assert pool.to_json() == {
        "name": "local",
        "engine": "local",
        "settings": None,
        "configured": True,
        "places": True,
        "kinds": ["cuda"],
        "nodes": 2,
        "slots": 12,
        "used": 8,
        "waiting": 1,
        "problem": "",
        "limit": "",
        "default": True,
        "allocations": [],
    }


def test_what_is_set_outlives_the_service(served, person):
    person("ada").set_quota("user", "dave", {"limit": 4})
    person("ada").drain("n2")
    served.run(served._stop())
    served.port = 0
    served.run(served._start())
    ada = served.client("ada")
    assert [each.changed for each in ada.accounts() if each.name == "dave"] == [{"limit": 4}]
    assert [each.drained for each in ada.nodes()] == [False, True]
