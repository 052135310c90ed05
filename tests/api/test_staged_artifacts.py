"""Test that artifacts from nodes without access to the service's home arrive through the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_backend.artifacts.outbox import Outbox
from kernel_backend.artifacts.write import look
from kernel_backend.client import Client
from kernel_backend.durable import TEMPORARY
from kernel_backend.errors import InvalidRequest, NotFound, TooLarge
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.staging import LIMIT, PIECE, StagingRequest
from kernel_backend.model.stream import Message
from kernel_backend.service.verbs import staging
from kernel_backend.staging.artifact_sender import DAMAGED, ArtifactSender
from kernel_backend.store.sql import SqlStore
from tests.api.served import Served, submit, token_of
from tests.support.disks import small_disk
from tests.support.world import until

KEY = AttemptId(1, 1, 1)


class Away:
    """Attempt on a node with its own disk: its files, and the launcher that sends them."""

    def __init__(self, served: Served, node: Path) -> None:
        self.served, self.node = served, node
        self.token = token_of(served, KEY)
        self.outbox = Outbox(node)

    def keep(self, name: str, data: bytes, step: int = 3) -> None:
        file = self.node / "made.bin"
        file.write_bytes(data)
        self.outbox.put(look(name, file), step)

    @contextmanager
    def launcher(self) -> Iterator[None]:
        """Run the launcher during the block, and send the remaining artifacts after it."""
        request = StagingRequest(key=str(KEY), urls=(self.served.url,), uid=None, token=self.token)
        sender = ArtifactSender(self.node, request, self.served.client(self.token))
        sender.start()
        yield
        sender.finish(60)
        assert not sender.is_alive()

    def told(self) -> list[Message]:
        """Return the artifacts that views list."""
        store = SqlStore(f"sqlite:///{self.served.home}/daylight.db")
        return [message for message in store.messages(0) if message.type == "artifact"]

    def left(self) -> list[Path]:
        """Return the artifact files that remain on the node."""
        return list((self.node / "artifacts").rglob("*"))


@pytest.fixture
def away(served: Served, client: Client, tmp_path: Path) -> Away:
    submit(client)
    node = tmp_path / "node"
    node.mkdir()
    made = Away(served, node)
    job = served.engine.jobs[KEY].model_copy(update={"staged": True})
    AttemptFolder(attempt_folder(served.home, KEY)).prepare(job, made.token)
    return made


def test_artifacts_arrive_while_ranks_run_and_leave_the_node(away, client):
    with away.launcher():
        away.keep("weights", bytes(range(256)) * 10_000)  # of several pieces
        until(lambda: client.artifacts(1), "it is listed before the ranks end")
        away.keep("empty", b"", step=5)
    assert [(each.name, each.attempt, each.step, each.file) for each in client.artifacts(1)] == [
        ("empty", 1, 5, "empty.bin"),
        ("weights", 1, 3, "weights.bin"),
    ]
    assert client.artifact(1, 1, "weights") == bytes(range(256)) * 10_000
    assert client.artifact(1, 1, "empty") == b""
    assert away.left() == []


def test_the_newest_of_a_name_replaces_the_others_which_are_not_sent(away, client):
    for number in range(5):
        away.keep("picture", b"%d" % number, step=number)
    with away.launcher():
        pass
    assert client.artifact(1, 1, "picture") == b"4"
    assert [each.step for each in client.artifacts(1)] == [4]
    assert len(away.told()) == 1


def test_repeated_calls_change_nothing(away, client):
    away.keep("net", b"a net")
    (waiting,) = away.outbox.waiting()
    digest = waiting.record.digest
    assert not client.keep_artifact(KEY, away.token, waiting.record).stored
    assert client.stage_artifact(KEY, away.token, digest, 0, b"a n") == 3
    assert client.stage_artifact(KEY, away.token, digest, 0, b"a n") == 3
    assert client.keep_artifact(KEY, away.token, waiting.record).size == 3
    assert client.artifacts(1) == []
    assert client.stage_artifact(KEY, away.token, digest, 3, b"et") == 5
    assert client.keep_artifact(KEY, away.token, waiting.record).stored
    with away.launcher():  # it did not hear that
        pass
    assert client.artifact(1, 1, "net") == b"a net"
    assert len(client.artifacts(1)) == 1
    assert len(away.told()) == 1


def test_a_content_that_is_damaged_on_the_way_never_becomes_an_artifact(away, client):
    away.keep("net", b"a net")
    (waiting,) = away.outbox.waiting()
    waiting.content.write_bytes(b"a bet")
    with away.launcher():
        pass
    assert client.artifacts(1) == []
    (warning,) = client.experiment(1).warnings
    assert warning.startswith(f"artifact net of step 3 was not kept: it arrived damaged {DAMAGED} times")
    assert list((away.served.home / "artifacts" / "1" / "1").iterdir()) == []


def test_what_a_program_has_put_there_or_taken_away_holds_up_nothing(away, client):
    away.keep("gone", b"x")
    away.outbox.waiting()[0].content.unlink()
    (away.node / "artifacts" / "0.json").write_text("garbage")
    (away.node / "artifacts" / "words.json").write_text("{}")
    away.keep("net", b"a net")
    with away.launcher():
        pass
    assert [each.name for each in client.artifacts(1)] == ["net"]
    (warning,) = client.experiment(1).warnings
    assert warning.startswith("artifact gone of step 3 was not kept: ")
    assert away.left() == []


def test_on_a_full_disk_of_the_service_an_artifact_is_lost_with_a_note_and_the_next_one_is_kept(away, client):
    with small_disk(away.served.home / "artifacts", 3 * PIECE):
        away.keep("large", b"x" * 4 * PIECE)
        away.keep("small", b"x")
        with away.launcher():
            pass
        (warning,) = client.experiment(1).warnings
        assert warning.startswith("artifact large of step 3 was not kept: ")
        assert warning.endswith("/artifacts/1/1 cannot be written: No space left on device")
        assert [each.name for each in client.artifacts(1)] == ["small"]
        assert [each.name for each in (away.served.home / "artifacts" / "1" / "1").iterdir()] == ["small"]


def test_what_earlier_attempts_left_unfinished_is_removed(away, client):
    folder = away.served.home / "artifacts" / "1" / "1"
    folder.mkdir(parents=True)
    left = folder / f"{TEMPORARY}0-{'0' * 32}"
    left.write_bytes(b"half")
    away.keep("net", b"a net")
    with away.launcher():
        pass
    assert [each.name for each in folder.iterdir()] == ["net"]


def test_an_attempt_that_is_over_keeps_nothing_more(away, client):
    away.served.engine.end(KEY)
    until(lambda: client.experiment(1).state == "completed", "it has ended")
    away.keep("late", b"x")
    with away.launcher():
        pass
    assert client.artifacts(1) == []
    with pytest.raises(NotFound):
        client.artifact(1, 1, "late")


def test_what_is_no_digest_and_what_is_too_large_is_refused(away, client):
    away.keep("net", b"a net")
    record = away.outbox.waiting()[0].record
    with pytest.raises(InvalidRequest, match="is no digest"):
        client.keep_artifact(KEY, away.token, record.model_copy(update={"digest": "../../token"}))
    with pytest.raises(TooLarge, match=r"more than 4 GiB: write it to a store"):
        client.keep_artifact(KEY, away.token, record.model_copy(update={"size": LIMIT + 1}))


def test_all_artifacts_of_a_trial_have_one_limit_and_a_number(away, client, monkeypatch):
    monkeypatch.setattr(staging, "ARTIFACTS_LIMIT", 10)
    monkeypatch.setattr(staging, "MOST_ARTIFACTS", 2)
    for name, data in (("one", b"123"), ("two", b"1234")):
        away.keep(name, data)
    with away.launcher():
        pass
    assert [each.name for each in client.artifacts(1)] == ["one", "two"]
    away.keep("three", b"")
    (waiting,) = away.outbox.waiting()
    with pytest.raises(TooLarge, match="this trial has 2 artifacts, and no more are taken"):
        client.keep_artifact(KEY, away.token, waiting.record)
    with pytest.raises(TooLarge, match="this trial has 2 artifacts"):
        client.stage_artifact(KEY, away.token, "0" * 32, 0, b"1")
    monkeypatch.setattr(staging, "MOST_ARTIFACTS", 3)
    with pytest.raises(TooLarge, match=r"is too large: 3 B are left for it"):
        client.stage_artifact(KEY, away.token, "0" * 32, 0, b"1234")
    assert client.stage_artifact(KEY, away.token, "0" * 32, 0, b"123") == 3
