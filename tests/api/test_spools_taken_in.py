"""Test that an attempt's slots are freed whatever its spool contains, and that all valid records are stored."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.client import Client
from kernel_backend.engines.base import GangStatus
from kernel_backend.errors import PlaceUnavailable
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery, SpoolPage, SpoolPosition
from kernel_backend.model.states import EXPERIMENT_ENDED, Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.model.views.overview import Overview
from kernel_backend.retry import RetryPolicy
from kernel_backend.service.loop import spools as taking_in
from tests.api.served import Served, StillEngine, started, submit, token_of
from tests.support.world import until

FIRST = AttemptId(1, 1, 1)
SECOND = AttemptId(2, 1, 1)


class Unhelpful(StillEngine):
    """Engine with some spools that cannot be read."""

    def __init__(self, spools: Path) -> None:
        super().__init__(spools=spools)
        self.unreadable: dict[AttemptId, Exception] = {}

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        if key in self.unreadable:
            raise self.unreadable[key]
        return await super().records(key, after, begin)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, Unhelpful(tmp_path))
    yield served
    served.stop()


def line(number: int, step: int | None = None, **fields: Any) -> str:
    """Return a line of a spool."""
    about = {"kind": "training", "step": step or number, "epoch": 0.1, "metrics": {"loss": 1 / number}}
    return json.dumps({"type": "report", "number": number, "at": 5.0, **about, **fields})


def runs(served: Served, client: Client) -> None:
    """Let the first gang run."""
    submit(client, "first", slots=2)
    client.deliver(FIRST, token_of(served, FIRST), Delivery(records=(started(),)))


def leaves(served: Served, client: Client, *lines: str | bytes, outcome: Outcome = Outcome.OK) -> None:
    """Let the first gang leave this spool and end, while a second gang waits for its slots."""
    submit(client, "second", slots=2)
    with (served.home / f"{FIRST}.jsonl").open("wb") as spool:
        for each in (started().model_dump_json(), *lines):
            spool.write((each if isinstance(each, bytes) else each.encode()) + b"\n")
    served.engine.ended[FIRST] = GangStatus(key=FIRST, phase="ended", outcome=outcome)


def ended(client: Client, number: int = 1) -> Overview:
    """Wait for the end of an experiment."""

    def look() -> Overview | None:
        found = client.experiment(number)
        return found if found.experiment.state in EXPERIMENT_ENDED else None

    return until(look, f"experiment {number} ends")


def steps(client: Client) -> list[int]:
    return [each.step for each in client.reports(1)]


BEYOND = 10**19
BAD = {
    "a step beyond 64 bits": line(3, step=BEYOND),
    "a number beyond 64 bits": line(BEYOND),
    "a number again": line(1),
    "no type": '{"number": 1}',
    "an epoch that is none": line(3, epoch="nan"),
    "a time that is none": line(3, at="inf"),
    "a checkpoint of no name": '{"type":"checkpoint","number":3,"id":"x","step":3,"epoch":1,"bytes":1,"seconds":1}',
    "total steps beyond 64 bits": started().model_copy(update={"number": 3, "total_steps": BEYOND}).model_dump_json(),
    "no UTF-8": b'{"type": "note", "number": 3, "text": "\xff\xfe"}',
    "half a character": '{"type":"note","number":3,"text":"\\ud800"}',
    "deep": '{"type":"fact","number":3,"name":"runtime","value":' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
    "huge": b"x" * 9_000_000,
    "nothing": "",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_line_that_cannot_be_stored_is_left_out_with_a_note_and_holds_no_slots(served, client, bad):
    runs(served, client)
    leaves(served, client, line(2), bad, line(4), line(5))
    overview = ended(client)
    assert (overview.state, steps(client)) == ("completed", [2, 4, 5])
    assert [each for each in overview.warnings if "left out" in each], overview.warnings
    until(lambda: SECOND in served.engine.jobs, "the slots are given to the next")


def test_a_stopped_training_with_such_a_line_ends(served, client):
    runs(served, client)
    leaves(served, client, line(2), line(1), outcome=Outcome.LOST)
    client.stop(1)
    assert ended(client).trials[0].state == "stopped"
    until(lambda: SECOND in served.engine.jobs, "the slots are given to the next")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), PlaceUnavailable("away"), ValueError("a mistake")])
def test_a_spool_that_cannot_be_read_holds_no_slots_and_the_user_is_told(served, client, monkeypatch, error):
    monkeypatch.setattr(taking_in, "RETRY", RetryPolicy((0.5,), limit=2.0))
    served.engine.unreadable[FIRST] = error
    runs(served, client)
    leaves(served, client, line(2))
    until(lambda: SECOND in served.engine.jobs, "the slots are given to the next")
    overview = ended(client)
    assert [each for each in overview.warnings if "cannot be read" in each and str(error) in each], overview.warnings


def test_a_pipe_in_place_of_a_spool_is_waited_for_by_nobody(served, client, monkeypatch):
    monkeypatch.setattr(taking_in, "RETRY", RetryPolicy((0.5,), limit=0.5))
    runs(served, client)
    os.mkfifo(served.home / f"{FIRST}.jsonl")
    served.engine.end(FIRST)
    assert any("is no regular file" in each for each in ended(client).warnings)


def test_a_spool_without_an_end_is_taken_in_up_to_a_limit_while_others_have_the_slots(served, client, monkeypatch):
    monkeypatch.setattr(taking_in, "MOST_PAGES", 3)
    runs(served, client)
    leaves(served, client, *(line(number) for number in range(2, 5000)))
    overview = ended(client)
    assert steps(client) == list(range(2, 3002))
    assert any("its spool is too long" in each for each in overview.warnings), overview.warnings
    until(lambda: SECOND in served.engine.jobs, "the slots are given to the next")


def test_slots_go_to_the_next_while_a_spool_is_still_taken_in_and_a_restart_goes_on_with_it(tmp_path):
    engine = Unhelpful(tmp_path)
    served = Served(tmp_path, engine)
    client = served.client()
    engine.unreadable[FIRST] = OSError(5, "Input/output error")  # as long as this test wants
    runs(served, client)
    leaves(served, client, line(2), line(3), outcome=Outcome.FAILED)
    engine.end(FIRST, Failure(rank=0, type="ValueError", message="boom", traceback="Traceback", step=3))
    until(lambda: SECOND in engine.jobs, "the slots are given to the next")
    attempt, trial = client.experiment(1).attempts[-1], client.experiment(1).trials[0]
    assert (attempt.state, attempt.outcome, trial.state) == ("ended", Outcome.FAILED, "running")
    client.close()
    served.stop()
    engine.unreadable.clear()
    served = Served(tmp_path, engine)
    client = served.client()
    trial = until(lambda: (now := client.experiment(1).trials[0]).state == "queued" and now, "it asks again")
    assert (trial.failures, trial.step, steps(client)) == (1, 3, [2, 3])
    assert trial.failure is not None
    assert trial.failure.message == "boom"
    until(lambda: FIRST in engine.forgotten, "the engine forgets it")
    client.close()
    served.stop()


def test_checkpoints_that_cannot_be_listed_hold_no_slots_and_the_trial_goes_on(served, client):
    runs(served, client)
    place = served.home / "checkpoints" / "1" / "1"
    place.parent.mkdir(parents=True)
    place.symlink_to(place)  # whoever looks there is led round in a circle
    leaves(served, client, line(2), outcome=Outcome.FAILED)
    until(lambda: SECOND in served.engine.jobs, "the slots are given to the next")
    until(lambda: client.experiment(1).trials[0].state == "queued", "the trial asks again")
