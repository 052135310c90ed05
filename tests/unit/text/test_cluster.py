"""Test the text of quotas, the queue and nodes, in the terminal and in a cell."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.model.cluster.accounts import Account, UseOverTime, Waiting
from kernel_backend.model.cluster.quotas import Quota, SlotHours, parse_slot_hours
from kernel_backend.model.experiment import FIRST
from kernel_backend.model.node_faults import Suspicion
from kernel_backend.model.views.overview import NodeRun, NodeUse, Wait
from kernel_backend.text import cluster


def account(
    name: str = "dave", kind: str = "user", held: int = 0, window: float | None = None, **fields: Any
) -> Account:
    quota = Quota.model_validate(fields.pop("quota", {}))
    use = {"held": held, "decayed": 0.0, "window": window}
    return Account.model_validate({"kind": kind, "name": name, "quota": quota, "use": use, **fields})


@pytest.mark.parametrize(
    ("part", "whole", "drawn"),
    [
        (0, 8, "░░░░░░░░"),
        (1, 8, "█░░░░░░░"),
        (0.01, 8, "█░░░░░░░"),
        (8, 8, "████████"),
        (12, 8, "████████"),
        (0, 0, "████████"),
    ],
)
def test_a_bar_shows_what_is_used_at_all_and_is_full_where_nothing_is_left(part, whole, drawn):
    assert cluster.bar(part, whole) == drawn


def test_a_row_of_quotas_tells_each_number_and_whose_it_is():
    quota = {"limit": 8, "guarantee": 2, "slot_hours": "500/7d", "max_slots_per_trial": 4, "priority": 5, "weight": 2.5}
    quota["storage"] = "500GB"
    mine = account(held=4, window=450_000, quota=quota, changed={"limit": 8, "weight": 2.5})
    assert cluster.quota_row(mine) == (
        "user dave",
        "████░░░░ 4 of 8 *",
        "2",
        "██░░░░░░ 125 of 500/7d",
        "up to 4",
        "5",
        "2.5 *",
        "up to 500.0 GB",
    )
    assert cluster.quota_row(account()) == ("user dave", "0, no limit", "", "", "", "0", "1", "")


@pytest.mark.parametrize("text", ["500/7d", "40/12h", "1.5/1d", "100/36h"])
def test_slot_hours_are_written_as_they_are_read(text):
    assert str(parse_slot_hours(text)) == text
    assert str(parse_slot_hours("2000/4w")) == "2000/28d"
    assert parse_slot_hours(str(SlotHours(hours=3, window=5400))) == SlotHours(hours=3, window=5400)


def test_a_change_tells_before_and_after_and_how_to_take_it_back():
    before = account("a b", quota={"limit": 4}, changed={"limit": 4})
    after = account("a b", quota={"limit": 8, "priority": 3}, changed={"limit": 8, "priority": 3})
    assert cluster.changed_lines(before, after, "daylight quota") == [
        "user a b: limit 4 -> 8, priority 0 -> 3",
        "to take it back: daylight quota set user 'a b' --limit 4 && daylight quota clear user 'a b' --priority",
    ]
    assert cluster.changed_lines(after, after, "daylight quota") == ["user a b: nothing has changed"]
    hubs = account("a b", quota={"limit": 8}, changed={})
    here = account("a b", quota={"limit": 8}, changed={"limit": 8})
    assert cluster.changed_lines(hubs, here, "daylight quota") == [
        "user a b: as before, except for who has set the number: limit",
        "to take it back: daylight quota clear user 'a b' --limit",
    ]


def test_one_warning_of_many_accounts_is_said_once():
    many = [account(name, warnings=("there are 12",)) for name in ("dave", "eve")]
    assert cluster.quota_notes(many) == ["note: there are 12"]
    assert cluster.quota_notes([many[0], account()]) == ["note: user dave: there are 12"]


def test_the_last_week_is_a_line_of_blocks():
    use = UseOverTime(at=tuple(range(0, 9 * 86400, 86400)), held=(0, 0, 1, 4, 8, 8, 2, 0.01), quota=Quota(limit=8))
    (line,) = cluster.account_lines(account(quota={"limit": 8}), use)
    assert line == "last 8 d:   ▁▄██▂   up to 8 slots"
    quiet = UseOverTime(at=(0.0, 1.0), held=(0.0,), quota=Quota())
    assert cluster.account_lines(account(members=("ada",), kind="group"), quiet) == ["members: ada"]


def waiting(place: int, **fields: Any) -> Waiting:
    defaults = {"pool": "local", "slots": 4, "queued_at": 100.0, "priority": 0, "owner": "", "group": "vision"}
    return Waiting.model_validate(defaults | {"place": place} | fields)


def test_the_queue_tells_ones_own_at_length_and_of_others_the_group():
    mine = {"owner": "dave", "experiment": 12, "trial": 3, "name": "digits", "priority": FIRST}
    rows = cluster.queue_rows(
        [waiting(1), waiting(2, **mine, wait=Wait(reason="no node has 4 free", place=2, estimate=720.0))], 160.0
    )
    assert [row[:6] for row in rows] == [
        ("1", "", "a user of vision", "4", "0", "1 min 00 s"),
        ("2", "#12.3 digits", "dave (vision)", "4", "first", "1 min 00 s"),
    ]
    assert [row[6] for row in rows] == ["", "no node has 4 free; in about 12 min"]
    pools = [waiting(1, pool="a100"), waiting(1, pool="cheap")]
    assert cluster.queue_head(pools)[0] == "pool"
    assert [row[0] for row in cluster.queue_rows(pools, 160.0)] == ["a100", "cheap"]


def test_a_node_tells_who_holds_it():
    runs = (
        NodeRun(slots=2, group="vision", owner="dave", experiment=12, trial=1),
        NodeRun(slots=1, group="speech"),
        NodeRun(slots=1, group=""),
        NodeRun(slots=2, group="", outside="pod ml/web"),
        NodeRun(slots=1, group="vision", owner="eve", server="eve/", last_activity=-2300.0, take_back_at=400.0),
    )
    node = NodeUse(name="n 1", kind="cuda", slots=4, used=4, devices=("A100",) * 3 + ("T4",), runs=runs)
    assert cluster.node_row(node, 100.0) == (
        "n 1",
        "local",
        "cuda",
        "████████ 4 of 4",
        "dave 2 (#12), a user of speech 1, another user 1, pod ml/web 2, eve 1 (notebook server, idle for 40 min 00 s, "
        "may be stopped for its slots in 5 min 00 s)",
        "ready",
        "3 x A100, T4",
    )
    away = node.model_copy(update={"healthy": False, "state": "down*", "reason": "Not responding"})
    suspicion = Suspicion(since=0.0, until=3700.0, reason="GPU 0 (A100): Xid 79")
    suspect = node.model_copy(update={"suspicion": suspicion, "state": "idle"})
    used = node.model_copy(update={"name": "n2", "suspicion": suspicion.model_copy(update={"left_out": False})})
    assert [cluster.node_state(each) for each in (away, suspect, used)] == ["away (down*)", "suspect (idle)", "ready"]
    assert cluster.node_notes([away, suspect, used], "daylight nodes", 100.0) == [
        "n 1: Not responding",
        "n 1: left out for 1 h 00 min more: GPU 0 (A100): Xid 79",
        "n2: suspect, but used as half of its pool is left out, for 1 h 00 min more: GPU 0 (A100): Xid 79",
        "for admins: daylight nodes undrain 'n 1' trusts it again, daylight nodes drain 'n 1' keeps it out",
    ]
    drained = node.model_copy(update={"drained": True, "runs": runs[:1]})
    assert cluster.drained_lines(drained, "daylight nodes", 0.0) == [
        "n 1: drained, nothing new is started there; 2 slots in use there: dave 2 (#12), until they end",
        "to take it back: daylight nodes undrain 'n 1'",
    ]
