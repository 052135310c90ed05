"""Test which orders holders in pods get, and which of their reports count, after repetitions, losses and restarts."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kernel_backend.engines.allocations.lines import EVENTS, append_line
from kernel_backend.engines.kubernetes.allocations import AllocationPods, PodAllocation, PodRecord
from kernel_backend.engines.kubernetes.pods import pod_state
from kernel_backend.model.launch.holder import HolderEvent, HolderReport

GANG = "7.1-1:5f3a9c00"


def made(folder: Path, nodes: int = 1) -> PodAllocation:
    record = PodRecord(
        id="7-5f3a9c",
        pool="cloud",
        experiment=7,
        slots=nodes,
        python="python3",
        options=(),
        seconds=3600.0,
        at=1.0,
        nodes=nodes,
        digest="0" * 64,
        uid="u1",
    )
    held = PodAllocation(folder, record)
    held.change()
    return held


def tell(held: PodAllocation, event: str, node: int = 0, code: int | None = None, at: float = 100.0) -> None:
    key = GANG if event in ("started", "ended") else ""
    held.store(HolderReport(node=node, events=(HolderEvent(event=event, at=at, key=key, code=code),)))


def heard(held: PodAllocation, node: int = 0, count: int = 0) -> list[str]:
    return [each["order"] for each in asyncio.run(held.orders_for(node, count, 0.01))]


def start(held: PodAllocation) -> None:
    for node in range(held.holders):
        tell(held, "begun", node)
    held.assign(GANG)
    held.order("start", GANG)


def test_an_order_is_given_to_each_holder_until_it_says_that_it_has_it(tmp_path):
    held = made(tmp_path)
    start(held)
    assert heard(held) == heard(held) == ["start"]
    held.order("close")
    assert heard(held, count=1) == ["close"]
    assert heard(held, count=2) == []


def test_a_new_service_goes_on_with_the_same_orders_and_events(tmp_path):
    held = made(tmp_path)
    start(held)
    tell(held, "started")
    again = PodAllocation.opened(tmp_path)
    assert again is not None
    assert (again.running, again.started, again.gang) == (True, {GANG}, GANG)
    assert heard(again) == ["start"]
    assert heard(again, count=1) == []


def test_a_gang_begins_on_the_first_node_before_it_does_on_others(tmp_path):
    held = made(tmp_path, nodes=2)
    start(held)
    assert (heard(held), heard(held, node=1)) == (["start"], [])
    tell(held, "started")
    assert heard(held, node=1) == ["start"]


def test_a_gang_begins_once_all_pods_run(tmp_path):
    held = made(tmp_path, nodes=2)
    held.assign(GANG)
    held.order("start", GANG)
    tell(held, "begun")
    assert (heard(held), held.may_begin(GANG)) == ([], False)
    tell(held, "begun", node=1)
    assert (heard(held), held.may_begin(GANG)) == (["start"], True)


def test_one_that_the_first_node_never_began_begins_nowhere_and_its_order_keeps_no_later_one_back(tmp_path):
    held = made(tmp_path, nodes=2)
    start(held)
    held.order("close")
    assert heard(held, node=1) == []
    tell(held, "ended")
    assert held.ended == {GANG: None}
    assert heard(held, node=1) == ["start", "close"]


@pytest.mark.parametrize(("codes", "expected"), [((0, 1), 1), ((0, 0), 0), ((-9, 0), -9)])
def test_a_gang_has_ended_once_all_nodes_say_so(tmp_path, codes, expected):
    held = made(tmp_path, nodes=2)
    start(held)
    for node, code in enumerate(codes):
        assert held.gang == GANG
        tell(held, "started", node)
        tell(held, "ended", node, code)
        tell(held, "ended", node, code)  # its answer was lost
    assert (held.ended, held.gang) == ({GANG: expected}, "")


def test_a_gang_may_begin_from_when_a_holder_may_have_its_order(tmp_path):
    held = made(tmp_path)
    start(held)
    assert not held.may_begin(GANG)
    heard(held)
    assert held.may_begin(GANG)
    again = PodAllocation.opened(tmp_path)
    assert again is not None
    assert again.may_begin(GANG)


def test_its_time_begins_with_its_holder(tmp_path):
    held = made(tmp_path, nodes=2)
    tell(held, "begun", node=1, at=100.0)
    assert (held.in_cluster().running, held.in_cluster().ends) == (False, 3700.0)
    tell(held, "begun", at=130.0)
    assert (held.in_cluster().running, held.in_cluster().ends) == (True, 3700.0)


def pod(phase: str = "Running", node: str = "n1", **metadata: str) -> dict:
    return {"metadata": {"name": "p-0", **metadata}, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (pod(), ""),
        (pod("Failed"), "pod p-0 has ended"),
        (pod(deletionTimestamp="2026-11-27T22:00:00Z"), "pod p-0 is being deleted"),
        (pod(node="n2"), "the end of node n2 is announced (spot)"),
    ],
)
def test_no_gang_begins_in_pods_that_leave(found, problem):
    assert AllocationPods({0: pod_state(found)}, {}).problem({"n2": "spot"}) == problem


def test_an_allocation_is_over_once_none_of_its_pods_runs():
    ended, runs = pod_state(pod("Succeeded")), pod_state(pod())
    assert AllocationPods({0: ended}, {}).over(0.0, (), absent=False)
    assert not AllocationPods({0: ended, 1: runs}, {}).over(0.0, (), absent=False)
    assert not AllocationPods({}, {}).over(0.0, (), absent=False)  # as before they are seen for the first time
    assert AllocationPods({}, {}).over(0.0, (), absent=True)


def test_what_a_holder_writes_beside_the_rules_is_left_out(tmp_path):
    held = made(tmp_path)
    start(held)
    for line in ({"node": "x"}, {"node": None}, {"node": [0]}, {"at": "soon"}, {"event": {}}, {"code": "1"}):
        append_line(tmp_path / EVENTS, **{"event": "begun", "at": 100.0, "node": 0} | line)
    tell(held, "started")
    assert (held.started, held.begun) == ({GANG}, {0: 100.0})


def test_a_wrong_clock_of_a_node_neither_ends_an_allocation_nor_prolongs_it(tmp_path):
    (tmp_path / "past").mkdir()
    (tmp_path / "future").mkdir()
    past, future = made(tmp_path / "past"), made(tmp_path / "future")
    tell(past, "begun", at=-1e9)
    tell(future, "begun", at=1e12)
    assert past.begun == {0: past.record.at}
    assert future.begun[0] <= time.time()
