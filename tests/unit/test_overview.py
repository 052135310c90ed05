"""An overview goes over the wire and comes back, and takes messages in one by one."""

from __future__ import annotations

import json

from kernel_backend.model.overview import Overview, Wait
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.states import TrialState
from kernel_backend.model.stream import Message
from tests.builders import attempt, trial
from tests.unit.test_text import experiment


def picture(*trials, **fields) -> Overview:
    return Overview(experiment=experiment(number=1), trials=trials or (trial(),), seq=5, **fields)


def message(type: str, data: dict, seq: int = 6, number: int = 1) -> Message:
    return Message(seq=seq, at=0.0, experiment=number, type=type, data=data)


def reported(step: int, kind: str = "validation") -> dict:
    metrics = {"loss": 1 / step}
    report = StoredReport(seq=6, trial=1, attempt=1, at=0, kind=kind, step=step, epoch=1, metrics=metrics)
    return report.to_json()


def test_it_comes_back_as_it_went():
    there = picture(trial(metrics={"loss": float("inf")}), attempts=(attempt(),), warnings=("careful",))
    body = json.loads(json.dumps(there.to_json()))
    assert (body["id"], body["state"], body["name"]) == (1, "running", "digits")
    assert Overview.from_json(body) == there


def test_a_message_replaces_what_it_is_about():
    queued = picture(trial(TrialState.QUEUED), wait=Wait(reason="next in queue", place=1))
    moved = queued.after(message("trial", trial(TrialState.STARTING).to_json()))
    assert (moved.state, moved.wait, moved.seq) == ("starting", None, 6)
    again = moved.after(message("attempt", attempt(2).to_json(), seq=7))
    assert [each.number for each in again.attempts] == [2]
    assert again.after(message("attempt", attempt(3).to_json(), seq=8)).attempts[-1].number == 3


def test_what_is_known_already_or_foreign_changes_nothing():
    known = picture()
    assert known.after(message("note", {"text": "old"}, seq=5)) is known
    assert known.after(message("note", {"text": "theirs"}, number=2)) is known


def test_reports_move_the_trial_forward_and_never_back():
    moved = picture().after(message("report", reported(4)))
    assert (moved.trials[0].step, moved.trials[0].metrics) == (4, {"loss": 0.25})
    back = moved.after(message("report", reported(2), seq=7))
    assert back.trials == moved.trials
    further = moved.after(message("report", reported(8, kind="training"), seq=7))
    assert (further.trials[0].step, further.trials[0].metrics) == (8, {"loss": 0.25})


def test_a_note_is_noted_once():
    noted = picture().after(message("note", {"text": "disk full"}))
    assert noted.after(message("note", {"text": "disk full"}, seq=7)).warnings == ("disk full",)
