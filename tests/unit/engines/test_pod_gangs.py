"""Test which allocation a gang gets on Kubernetes, and what becomes of both when pods, requests or the service fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel_backend.engines.kubernetes import allocated_gangs, status
from kernel_backend.engines.kubernetes.allocations import PodAllocation
from kernel_backend.engines.kubernetes.status import StatusReader
from kernel_backend.engines.kubernetes.submission import Submission, write_submission
from kernel_backend.engines.kubernetes.watch import CachedPods
from kernel_backend.errors import Conflict, PlaceUnavailable
from kernel_backend.launch.folder import LauncherRecord
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.holder import HolderEvent, HolderReport
from kernel_backend.model.launch.staging import UNHEARD
from kernel_backend.model.reports import NodeEnd
from tests.support.kept_pods import KeptPods


@pytest.fixture
def site(tmp_path: Path) -> KeptPods:
    return KeptPods(tmp_path)


def test_trials_get_the_free_pods_of_their_search_and_never_share_them(site):
    first, second = site.place(1), site.place(2)
    assert first.allocation != second.allocation
    held = site.held(first)
    site.tell(held, "begun")
    site.tell(held, "started", "ended", key=first.step)
    assert [site.place(trial).allocation for trial in (3, 4)] == [first.allocation, site.gang(4).allocation]
    assert site.namespace.created == 3


def test_a_gang_that_never_started_gets_other_pods(site):
    first = site.place()
    site.namespace.pods.clear()
    site.round()
    assert (site.gang().allocation, site.gang().delayed) == ("", True)
    assert site.place().allocation != first.allocation
    site.round()
    site.round()
    assert list(site.kept.known) == [site.gang().allocation]


def test_a_gang_that_has_other_pods_keeps_them_though_the_service_died_before_it_recorded_that(site):
    first = site.place()
    folder, orders = site.held(first).folder, (site.held(first).folder / "orders").read_bytes()
    site.namespace.pods.clear()
    site.round()
    second = site.place()
    (folder / "orders").write_bytes(orders)  # the service died before it wrote that the gang is withdrawn from there
    site.restart()
    site.round()
    site.round()
    assert site.gang() == second
    assert list(site.kept.known) == [second.allocation]


def test_a_gang_that_got_other_pods_does_not_start_on_a_lost_node_that_still_reaches_the_service(site):
    first = site.place()
    held = site.held(first)
    assert [each.order for each in site.tell(held, "begun").orders] == ["start"]
    site.namespace.pods.clear()
    site.round()
    with pytest.raises(Conflict, match=r"1\.1-1:\w+ must not start here: it was withdrawn"):
        site.tell(held, "started", key=first.step)
    assert site.place().allocation != first.allocation
    assert [each.order for each in site.tell(held, orders=1).orders] == ["close", "withdrawn"]
    assert first.step not in held.started


def test_a_gang_that_is_released_while_its_pods_wait_never_starts(site):
    first = site.place()
    held = site.held(first)
    asyncio.run(site.kept.release(first))
    assert held.ended == {first.step: None}
    assert [each.order for each in site.tell(held, "begun").orders] == ["withdrawn", "withdrawn"]


def test_a_running_gang_is_asked_to_exit(site):
    first = site.place()
    held = site.held(first)
    site.tell(held, "begun")
    site.tell(held, "started", key=first.step)
    asyncio.run(site.kept.release(first))
    assert [each.order for each in site.tell(held, orders=1).orders] == ["release"]


def test_pods_are_deleted_where_only_some_of_them_run_and_a_gang_waits_for_the_others(site):
    first = site.place(nodes=2)
    site.tell(site.held(first), "begun")
    asyncio.run(site.kept.give_back(first.allocation, "a part of the gang had nodes"))
    assert not site.namespace.pods


def test_pods_are_deleted_whose_first_one_left_before_it_heard_of_a_gang(site, monkeypatch):
    monkeypatch.setattr(allocated_gangs, "CLOSE_S", -1.0)
    first = site.place(nodes=2)
    held = site.held(first)
    for node in (0, 1):
        site.tell(held, "begun", node=node)
    site.tell(held, "closed")
    site.namespace.pods[first.kept][0]["status"]["phase"] = "Succeeded"
    site.round()
    assert not site.namespace.pods
    site.round()
    assert (site.gang().allocation, site.gang().delayed) == ("", True)


@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_left_of_a_gang_is_killed_before_its_pods_are(site, monkeypatch, recorded):
    monkeypatch.setattr(allocated_gangs, "LEAVE_S", 0.1)
    first = site.place()
    held = site.held(first)
    site.tell(held, "begun")
    site.tell(held, "started", key=first.step)
    if recorded:
        end = NodeEnd(node=0, names=("",), size=1, codes={0: 0}, ended_at=1.0)
        site.folders.of(AttemptId(1, 1, 1)).write_end(end)

    async def killed() -> list[str]:
        kill = asyncio.create_task(site.kept.kill(AttemptId(1, 1, 1), first, held, ()))
        orders = await held.orders_for(0, 1, 5.0)
        held.store(HolderReport(node=0, events=(HolderEvent(event="ended", at=1.0, key=first.step, code=-9),)))
        await kill
        return [each["order"] for each in orders]

    assert asyncio.run(killed()) == ["kill"]
    assert site.namespace.pods[first.kept][0]["status"]["phase"] == "Running"
    assert held.gang == ""


def end_of(site: KeptPods, trial: int = 1) -> tuple[str, str]:
    """Return the type and message of the failure that ended the gang of a trial."""
    reader = StatusReader(site.folders, site.kept.known_to, 300.0)
    reader.read(CachedPods(site.namespace.pods), ())
    found = site.gang(trial).end
    return ("", "") if found is None or found.failure is None else (found.failure.type, found.failure.message)


def fail(site: KeptPods, gang: Submission, said: str, code: int = 1, **why: str) -> None:
    """Let the first pod of a gang end with an error."""
    ended = {"exitCode": code, "reason": "Error", "message": said}
    state = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}], **why}
    site.namespace.pods[gang.kept][0]["status"] = state


@pytest.mark.parametrize(
    ("said", "todo"),
    [
        ("No module named 'kernel_backend'", "install daylight into the image of the pool"),
        (f"{UNHEARD}: no address of the service can be reached", "let pods reach the service"),
    ],
)
def test_a_trial_fails_whose_pods_cannot_run_their_program_and_others_are_not_requested_for_ever(site, said, todo):
    first = site.place()
    fail(site, first, said)
    for _ in range(3):
        site.round()
    failure, message = end_of(site)
    assert (failure, said in message, todo in message) == ("LauncherFailed", True, True)
    asyncio.run(site.kept.kill(AttemptId(1, 1, 1), first, site.held(first), ()))
    site.round()
    assert not site.kept.known


@pytest.mark.parametrize("why", [{"reason": "Evicted"}, {"reason": "NodeLost"}])
def test_a_trial_whose_pods_were_taken_away_before_they_began_gets_others(site, why):
    fail(site, site.place(), "", **why)
    site.round()
    assert end_of(site) == ("", "")
    assert site.gang().delayed


def test_a_trial_whose_holder_died_after_it_had_begun_gets_other_pods(site):
    first = site.place()
    site.tell(site.held(first), "begun")
    fail(site, first, "", code=137)
    site.round()
    assert end_of(site) == ("", "")
    assert site.gang().delayed


@pytest.mark.parametrize(("code", "expected"), [(137, "OutOfMemory"), (0, "")])
def test_memory_that_an_earlier_trial_used_up_is_no_reason_of_a_later_one(site, monkeypatch, code, expected):
    monkeypatch.setattr(status, "SETTLE_S", -1.0)
    monkeypatch.setattr(status, "RECORD_S", -1.0)
    first = site.place()
    held = site.held(first)
    site.tell(held, "begun")
    site.tell(held, "started", key=first.step)
    site.folders.of(AttemptId(1, 1, 1)).write_launcher(LauncherRecord(pid=1, started=0.0))
    ended = {"exitCode": code, "reason": "OOMKilled"}
    site.namespace.pods[first.kept][0]["status"] = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"state": {"terminated": ended}}],
    }
    assert end_of(site)[0] == expected
    assert site.gang().end is not None


def test_a_launcher_that_cannot_begin_in_kept_pods_fails_its_trial_and_blames_the_node(site, monkeypatch):
    monkeypatch.setattr(status, "SETTLE_S", -1.0)
    first = site.place()
    held = site.held(first)
    site.tell(held, "begun")
    site.tell(held, "started", key=first.step)
    held.store(HolderReport(node=0, events=(HolderEvent(event="ended", at=1.0, key=first.step, code=127),)))
    failure, message = end_of(site)
    assert (failure, "exit code 127" in message, f"{first.kept}-0" in message) == ("LauncherFailed", True, True)
    found = site.gang().end
    assert found is not None
    assert [(each.node, each.kind) for each in found.problems] == [("n0", "start")]


def test_no_allocation_is_left_whose_record_cannot_be_written(site, monkeypatch):
    changes = []

    def full(self: PodAllocation, **fields: object) -> None:
        changes.append(fields)
        if fields:
            raise OSError("No space left on device")

    monkeypatch.setattr(PodAllocation, "change", full)
    with pytest.raises(OSError, match="No space left"):
        site.place()
    assert [list(each) for each in changes] == [[], ["job", "uid"]]
    assert not site.namespace.pods
    assert not site.kept.known
    assert not list((site.home / "allocations").iterdir())


def test_a_gang_is_asked_to_leave_each_ending_node_to_which_it_comes(site):
    first = site.place()
    write_submission(site.folders.of(AttemptId(1, 1, 1)), first.model_copy(update={"ending": "node n0 ends"}))
    site.namespace.pods.clear()
    site.round()
    assert site.place().ending == ""


def test_a_gang_ends_with_its_first_launcher_that_cannot_begin(site, monkeypatch):
    monkeypatch.setattr(status, "SETTLE_S", -1.0)
    first = site.place(nodes=2)
    held = site.held(first)
    for node in (0, 1):
        site.tell(held, "begun", node=node)
        site.tell(held, "started", key=first.step, node=node)
    site.folders.of(AttemptId(1, 1, 1)).write_launcher(LauncherRecord(pid=1, started=0.0))
    held.store(HolderReport(node=1, events=(HolderEvent(event="ended", at=1.0, key=first.step, code=127),)))
    failure, message = end_of(site)
    assert (failure, f"{first.kept}-1" in message) == ("LauncherFailed", True)


def test_an_event_that_cannot_be_stored_is_to_be_told_again(site):
    first = site.place()
    (site.held(first).folder / "events").mkdir()
    with pytest.raises(PlaceUnavailable, match="cannot be written"):
        site.tell(site.held(first), "begun")
