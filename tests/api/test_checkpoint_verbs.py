"""Test checkpoints over the API: list with reasons, verify, pin, delete, and collect by the retention rules."""

from __future__ import annotations

import io
import tarfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.copy import copy_checkpoint
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.client import Client
from kernel_backend.errors import CheckpointDamaged, Conflict, DaylightError, NotFound
from kernel_backend.model.checkpoints import GarbageRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Keep, Metric
from kernel_backend.model.ids import AttemptId
from kernel_backend.service.garbage import collect
from tests.api.committed import commit, folder, names, spoil
from tests.api.served import TOKEN, Served, ended, paused, submit, token_of
from tests.support.world import until

BOB = Person(name="bob")

KEY = AttemptId(1, 1, 1)
RULES = {"keep": Keep(best=1, latest=1), "metric": Metric(name="loss")}


def found(client: Client) -> dict[str, tuple[str, ...]]:
    return {each.id: each.kept for each in client.checkpoints(1)}


@pytest.fixture
def four(served: Served, client: Client, tmp_path: Path) -> Path:
    """Provide an experiment with four checkpoints, the first of which is best; it retains the best and the latest."""
    submit(client, **RULES)
    token_of(served, KEY)  # what it began from is none of these
    for step, loss in ((10, 0.1), (20, 0.4), (30, 0.3), (40, 0.2)):
        commit(tmp_path, step, loss=loss)
    return tmp_path


def test_a_list_says_why_each_is_kept(served: Served, client: Client, four: Path) -> None:
    assert found(client) == {
        "10-1": ("best",),
        "20-1": (),
        "30-1": ("fall-back",),
        "40-1": ("latest", "fall-back"),
    }
    first = client.checkpoints(1)[0]
    assert (first.step, first.epoch, first.metrics, first.verified, first.pinned) == (
        10, 1.0, {"loss": 0.1}, "not read", False,
    )  # fmt: skip
    ended(served, client, KEY)
    until(lambda: found(client) == {"10-1": ("best",), "40-1": ("latest",)}, "nothing is needed to go on any more")


def test_values_that_are_no_numbers_arrive_as_such(client: Client, tmp_path: Path) -> None:
    submit(client)
    commit(tmp_path, 10, loss=float("nan"))
    (only,) = client.checkpoints(1)
    assert only.metrics["loss"] != only.metrics["loss"]


def test_what_was_verified_is_known_until_a_file_changes(
    client: Client, four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    verify = Directory.verify
    monkeypatch.setattr(Directory, "verify", lambda self, each: (read.append(each.id), verify(self, each))[1])
    assert client.verify(1, 1, "10-1").verified == "yes"
    client.pin(1, 1, "10-1")
    client.pin(1, 1, "10-1", pinned=False)
    assert [each.verified for each in client.checkpoints(1)] == ["yes", "not read", "not read", "not read"]
    assert read == ["10-1"]
    spoil(folder(four) / "10-1" / "model.safetensors")
    assert client.checkpoints(1)[0].verified == "not read"
    damaged = client.verify(1, 1, "10-1")
    assert damaged.verified == "damaged"
    assert "part model has changed since it was written" in damaged.problem
    assert "10-1" in names(four), "looking changes nothing"


def test_a_damaged_one_pushes_no_whole_one_out(client: Client, four: Path) -> None:
    spoil(folder(four) / "40-1" / "model.safetensors")
    client.verify(1, 1, "40-1")
    why = found(client)
    assert why["40-1"] == ("damaged: look at it, and delete it with daylight checkpoint delete 1.1 --step 40",)
    assert (why["30-1"], why["20-1"]) == (("latest", "fall-back"), ("fall-back",))
    client.delete(1, 1, "40-1")
    assert "40-1" not in found(client)


def test_what_is_pinned_stays_until_it_is_unpinned(served: Served, client: Client, four: Path) -> None:
    assert client.pin(1, 1, "20-1").kept == ("pinned",)
    with pytest.raises(Conflict, match=r"pinned: daylight checkpoint unpin 1\.1 --step 20"):
        client.delete(1, 1, "20-1")
    ended(served, client, KEY)
    until(lambda: set(found(client)) == {"10-1", "20-1", "40-1"}, "the rules have been applied")
    assert client.pin(1, 1, "20-1", pinned=False).kept == ()
    client.delete(1, 1, "20-1")
    assert "20-1" not in names(four)


def test_what_an_evaluation_awaits_is_neither_deleted_nor_collected(served: Served, client: Client, four: Path) -> None:
    place = Directory(folder(four))
    place.follow(9, True)
    for each in ("10-1", "30-1", "40-1"):
        place.judge(each, 9, {})
    with pytest.raises(Conflict, match="awaits an evaluation that follows its training"):
        client.delete(1, 1, "20-1")
    ended(served, client, KEY)
    until(lambda: set(found(client)) == {"10-1", "20-1", "40-1"}, "the rules have been applied")
    assert found(client)["20-1"] == ("awaited",)
    place.judge("20-1", 9, {})
    client.delete(1, 1, "20-1")
    assert "20-1" not in names(four)


def test_what_a_trial_may_need_to_go_on_is_not_deleted(served: Served, client: Client, four: Path) -> None:
    for newest in ("30-1", "40-1"):
        with pytest.raises(Conflict, match="end it first with daylight stop 1"):
            client.delete(1, 1, newest)
    client.delete(1, 1, "10-1")
    client.stop(1)
    served.engine.step_aside(KEY)
    until(lambda: client.experiment(1).state == "stopped", "#1 is stopped")
    client.delete(1, 1, "40-1")
    assert "40-1" not in names(four)


def test_the_checkpoint_that_an_attempt_began_from_is_not_deleted(
    served: Served, client: Client, tmp_path: Path
) -> None:
    submit(client, **RULES)
    token_of(served, KEY)
    commit(tmp_path, 10, loss=0.1)
    paused(served, client, KEY)
    client.resume(1)
    until(lambda: AttemptId(1, 1, 2) in served.engine.jobs, "it goes on")
    assert served.engine.jobs[AttemptId(1, 1, 2)].resume_from == "10-1"
    for step in (20, 30):
        commit(tmp_path, step, attempt=2)
    with pytest.raises(Conflict, match="goes on from"):
        client.delete(1, 1, "10-1")


def test_the_rules_are_applied_when_an_experiment_ends(served: Served, client: Client, four: Path) -> None:
    ended(served, client, KEY)
    until(lambda: names(four) == ["10-1", "40-1"], "what the rules let go is gone")


def test_a_trial_whose_beginning_is_gone_before_it_was_copied_fails_and_says_so(
    served: Served, client: Client, four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = threading.Event()

    def late(*asked: Any, **more: Any) -> None:
        deleted.wait(60)
        copy_checkpoint(*asked, **more)

    monkeypatch.setattr("kernel_backend.service.checkpoint_copies.copy_checkpoint", late)
    ended(served, client, KEY)
    until(lambda: names(four) == ["10-1", "40-1"], "what the rules let go is gone")
    again = client.retrain(1).experiment
    assert (again.begins_from, again.config.until) == ("1.1/10-1", 40)
    client.delete(1, 1, "10-1")
    deleted.set()
    until(lambda: client.experiment(again.number).state == "failed", "it cannot begin")
    failure = client.experiment(again.number).trials[0].failure
    assert failure is not None
    assert "has been deleted" in failure.message
    assert AttemptId(again.number, 1, 1) not in served.engine.tokens


def test_collecting_leaves_a_beginning_alone_that_is_being_copied(
    served: Served, client: Client, four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, collected, commit = threading.Event(), threading.Event(), Directory.commit

    def late(place: Directory, manifest: Manifest) -> None:
        written.set()
        collected.wait(60)
        commit(place, manifest)

    ended(served, client, KEY)
    until(lambda: names(four) == ["10-1", "40-1"], "what the rules let go is gone")
    monkeypatch.setattr(Directory, "commit", late)
    again = client.retrain(1).experiment
    assert written.wait(60)
    client.collect(again.number)
    collected.set()
    token_of(served, AttemptId(again.number, 1, 1))
    place = Directory(four / "checkpoints" / str(again.number) / "1")
    (copy,) = place.committed()
    place.verify(copy)


def test_a_trial_that_cannot_reach_its_place_for_a_beginning_waits_and_holds_nobody_up(
    served: Served, client: Client, four: Path
) -> None:
    ended(served, client, KEY)
    until(lambda: names(four) == ["10-1", "40-1"], "what the rules let go is gone")
    place = four / "checkpoints" / "2"
    place.symlink_to(place)
    again = client.retrain(1).experiment
    reason = "its checkpoints cannot be reached just now: Too many levels of symbolic links"
    until(lambda: (wait := client.experiment(again.number).wait) and reason in wait.reason, "it says why it waits")
    submit(client)
    token_of(served, AttemptId(3, 1, 1))
    place.unlink()
    token_of(served, AttemptId(2, 1, 1))


def test_collecting_leaves_trials_that_run_alone(client: Client, four: Path) -> None:
    said = client.collect()
    assert (said.goes, said.stays, said.running) == ((), (), ("1.1",))
    assert len(names(four)) == 4


def test_a_dry_run_says_what_would_go_and_the_next_one_does_it(served: Served, client: Client, four: Path) -> None:
    paused(served, client, KEY)
    would = client.collect(1, dry_run=True)
    assert [(each.id, each.reasons) for each in would.goes] == [("20-1", ("beyond the rules",))]
    assert would.goes[0].bytes == client.checkpoints(1)[1].bytes
    assert [each.id for each in would.stays] == ["10-1", "30-1", "40-1"]
    assert len(names(four)) == 4
    assert client.collect(1) == would
    assert names(four) == ["10-1", "30-1", "40-1"]
    with pytest.raises(NotFound):
        client.collect(7)


def test_what_was_set_aside_or_never_committed_goes_in_time(served: Served, client: Client, four: Path) -> None:
    Directory(folder(four)).set_aside("20-1")
    Directory(folder(four)).write("50-1", "model", [b"never committed"])
    ended(served, client, KEY)
    store, storage = served.service._store, served.service.checkpoints._storage
    experiment = store.experiment(1)
    until(lambda: names(four) == ["10-1", "20-1.bad", "40-1"], "the rules have been applied")
    assert collect(store, storage, experiment, time.time() + 6 * 86400).goes == ()
    assert names(four) == ["10-1", "20-1.bad", "40-1"]
    (old,) = collect(store, storage, experiment, time.time() + 8 * 86400).goes
    assert (old.id, old.reasons) == ("20-1.bad", ("damaged, set aside 8 days ago",))
    assert old.bytes > 0
    assert names(four) == ["10-1", "40-1"]


def test_nobody_reaches_what_is_anothers(served: Served, client: Client, four: Path) -> None:
    verbs = served.service.checkpoints

    for asked in (
        lambda: verbs.listed(BOB, 1),
        lambda: verbs.manifest(BOB, 1, 1, "10-1"),
        lambda: verbs.part(BOB, 1, 1, "10-1", "model"),
        lambda: verbs.verify(BOB, 1, 1, "10-1"),
        lambda: verbs.pin(BOB, 1, 1, "10-1", True),
        lambda: verbs.delete(BOB, 1, 1, "10-1"),
        lambda: verbs.collect(BOB, GarbageRequest(experiment=1)),
        lambda: served.service.archive(BOB, 1),
    ):
        with pytest.raises(NotFound, match="no experiment #1"):
            served.run(asked())
    assert served.run(verbs.collect(BOB, GarbageRequest())).running == ()
    assert len(names(four)) == 4


def test_what_is_not_there_is_named(client: Client, four: Path) -> None:
    for ask in (client.verify, client.pin, client.delete, client.manifest):
        with pytest.raises(NotFound, match=r"trial 1\.1 has no checkpoint 11-1: daylight checkpoints 1 lists them"):
            ask(1, 1, "11-1")
        with pytest.raises(NotFound, match=r"trial 1\.2"):
            ask(1, 2, "10-1")
    with pytest.raises(NotFound, match="no part optimizer; it has model"):
        next(client.part(1, 1, "10-1", "optimizer"))


def test_a_folder_that_cannot_be_read_is_said_and_no_mistake_of_ours(client: Client, tmp_path: Path) -> None:
    submit(client)
    folder(tmp_path).parent.mkdir(parents=True)
    folder(tmp_path).symlink_to(folder(tmp_path))
    with pytest.raises(DaylightError, match=r"cannot be reached just now: .*symbolic links") as refused:
        client.checkpoints(1)
    assert refused.value.http_status == 503


def test_damage_that_a_download_meets_is_known_to_the_list_from_then_on(client: Client, four: Path) -> None:
    spoil(folder(four) / "40-1" / "model.safetensors")
    assert client.checkpoints(1)[-1].verified == "not read"
    with pytest.raises(CheckpointDamaged):
        next(client.part(1, 1, "40-1", "model"))
    assert client.checkpoints(1)[-1].verified == "damaged"


def test_a_checkpoint_comes_as_one_file_which_is_cut_off_where_it_is_damaged(
    served: Served, client: Client, four: Path
) -> None:
    def answer(checkpoint: str) -> httpx.Response:
        url = f"{served.url}/api/experiments/1/checkpoints/1/{checkpoint}/files.tar"
        return httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)

    whole = answer("10-1")
    assert whole.headers["Content-Disposition"] == 'attachment; filename="checkpoint-1.1-10-1.tar"'
    with tarfile.open(fileobj=io.BytesIO(whole.content)) as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
    parts = {f"checkpoint-1.1-10-1/{each.name}": each.read_bytes() for each in folder(four).glob("10-1/*.safetensors")}
    assert files == parts | {"checkpoint-1.1-10-1/manifest.json": client.manifest(1, 1, "10-1")}
    assert answer("11-1").status_code == 404
    spoil(folder(four) / "40-1" / "model.safetensors")
    with pytest.raises(httpx.RemoteProtocolError):
        answer("40-1")
    assert client.checkpoints(1)[-1].verified == "damaged"


def test_a_part_goes_on_where_its_connection_broke(
    served: Served, client: Client, four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    part = served.service.checkpoints.part

    async def broken(*which: Any) -> tuple[int, AsyncIterator[bytes]]:
        size, pieces = await part(*which)
        asked.append(which[-1])

        async def some() -> AsyncIterator[bytes]:
            yield b"".join([piece async for piece in pieces])[:30]
            if size > 30:
                raise ConnectionError

        return size, some()

    expected = (folder(four) / "10-1" / "model.safetensors").read_bytes()
    monkeypatch.setattr(served.service.checkpoints, "part", broken)
    assert b"".join(client.part(1, 1, "10-1", "model")) == expected
    assert asked == list(range(0, len(expected), 30))


def test_parts_that_a_user_reads_leave_threads_to_others(
    served: Served, client: Client, four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads whole files before the first byte is sent: six take two of the service's threads."""
    may_end, begun = threading.Event(), list[str]()

    def slow(self: Directory, manifest: Manifest, name: str, offset: int = 0) -> Iterator[bytes]:
        begun.append(name)
        may_end.wait(60)
        raise OSError("no bytes")

    monkeypatch.setattr(Directory, "stream", slow)
    url, headers = f"{served.url}/api/experiments/1/checkpoints/1/10-1/parts/", {"Authorization": f"Bearer {TOKEN}"}
    part = httpx.get(url[:-7], headers=headers).json()["parts"][0]["name"]
    with ThreadPoolExecutor(6) as readers:
        answers = [readers.submit(httpx.get, url + part, headers=headers, timeout=90) for _ in range(6)]
        until(lambda: len(begun) == 2, "two are read")
        assert client.experiment(1).experiment.number == 1
        assert len(begun) == 2
        may_end.set()
        assert {each.result(90).status_code for each in answers} == {503}
    assert len(begun) == 6
