"""Test that the service gets all files of an attempt's folder once and complete, whatever fails meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_backend.errors import Fenced, ServiceUnreachable, TooLarge
from kernel_backend.model.launch.staging import PIECE, is_log, news
from kernel_backend.staging import stage_out
from kernel_backend.staging.stage_out import StageOut


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look and retry without pauses."""
    monkeypatch.setattr(stage_out, "PERIOD_S", 0.001)
    monkeypatch.setattr(stage_out, "RETRY_S", 0.001)


class Receiver:
    """Service that records the order and the content of the files that it receives."""

    def __init__(self, before: Callable[[str], None] = lambda name: None) -> None:
        self.files: dict[str, bytes] = {}
        self.order: list[str] = []
        self._before = before  # may raise, as if a request or its answer was lost

    def __call__(self, name: str, offset: int, data: bytes) -> int:
        self._before(name)
        known = self.files.get(name, b"")
        self.files[name] = known + news(len(known), offset, data) if is_log(name) else data
        self.order.append(name)
        self._before(name)
        return len(self.files[name])


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def test_the_end_of_the_ranks_comes_last_and_nothing_else_is_sent(tmp_path):
    sent = {"end.json": b"{}", "launcher.json": b"{1}", "rank-0.log": b"x" * (2 * PIECE + 5), "failure-0.json": b"f"}
    sent["measured-node-1.json"] = b"{}"
    write(tmp_path, sent)
    (tmp_path / "token").write_text("secret")
    (tmp_path / "spool.jsonl").write_text("{}")
    (tmp_path / "code").mkdir()
    service = Receiver()
    out = StageOut(tmp_path, service)
    out.start()
    assert out.finish()
    assert service.files == sent
    assert service.order[-1] == "end.json"
    assert "end.json" not in service.order[:-1]


def test_nothing_is_lost_or_doubled_where_requests_and_answers_are_lost(tmp_path):
    chance = random.Random(1)

    def fail(name: str) -> None:
        if chance.random() < 0.4:
            raise ServiceUnreachable("cut")

    service = Receiver(fail)
    out = StageOut(tmp_path, service)
    out.start()
    log = b""
    for number in range(200):
        log += b"line %d\n" % number
        with (tmp_path / "rank-0.log").open("ab") as file:
            file.write(b"line %d\n" % number)
    write(tmp_path, {"end.json": b"{}"})
    assert out.finish()
    assert service.files == {"rank-0.log": log, "end.json": b"{}"}


def test_a_service_that_has_lost_the_end_of_a_log_gets_it_again(tmp_path):
    write(tmp_path, {"rank-0.log": b"abcdef"})
    service = Receiver()
    service.files["rank-0.log"] = b"ab"
    out = StageOut(tmp_path, service)
    out._sent["rank-0.log"] = stage_out.FileState(5)
    out.start()
    assert out.finish()
    assert service.files["rank-0.log"] == b"abcdef"


def test_a_replaced_record_is_sent_again(tmp_path):
    write(tmp_path, {"ranks.json": b"{}"})
    service = Receiver()
    out = StageOut(tmp_path, service)
    out._pass(ending=False)
    out._pass(ending=False)
    assert service.order == ["ranks.json"]
    (tmp_path / "new").write_bytes(b"[]")
    (tmp_path / "new").replace(tmp_path / "ranks.json")
    out._pass(ending=False)
    assert service.files["ranks.json"] == b"[]"


def test_an_attempt_that_is_over_ends_the_delivery(tmp_path):
    def fenced(name: str) -> None:
        raise Fenced("attempt 1.1-1 is over: exit")

    write(tmp_path, {"rank-0.log": b"x", "end.json": b"{}"})
    out = StageOut(tmp_path, Receiver(fenced))
    out.start()
    out.join(60)
    assert (out.over, out.finish()) == ("attempt 1.1-1 is over: exit", True)


def test_a_file_that_is_refused_for_good_holds_up_no_other(tmp_path):
    def refuse(name: str) -> None:
        if name == "rank-0.log":
            raise TooLarge("rank-0.log is larger than 4 GiB")

    write(tmp_path, {"rank-0.log": b"x", "rank-1.log": b"y", "end.json": b"{}"})
    service = Receiver(refuse)
    out = StageOut(tmp_path, service)
    out.start()
    assert out.finish()
    assert service.files == {"rank-1.log": b"y", "end.json": b"{}"}
