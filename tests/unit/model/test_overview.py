"""Test that an overview survives JSON, and is updated by messages one after another."""

from __future__ import annotations

import json
import math

import pytest

from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import Search
from kernel_backend.model.states import AttemptState, ExperimentState, Hold, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Best
from kernel_backend.model.versions import read
from kernel_backend.model.views.overview import Overview, Wait
from tests.support.builders import attempt, trial
from tests.unit.text.test_text import experiment


def picture(*trials, **fields) -> Overview:
    return Overview(experiment=experiment(number=1), trials=trials or (trial(),), seq=5, **fields)


def message(type: str, data: dict, seq: int = 6, number: int = 1) -> Message:
    return Message(seq=seq, at=0.0, experiment=number, type=type, data=data)


def reported(step: int, kind: str = "validation", value: float | None = None) -> dict:
    metrics = {"loss": 1 / step if value is None else value}
    report = StoredReport(seq=6, trial=1, attempt=1, at=0, kind=kind, step=step, epoch=1, metrics=metrics)
    return report.to_json()


def test_it_comes_back_as_it_went():
    there = picture(trial(metrics={"loss": float("inf")}), attempts=(attempt(),), warnings=("careful",))
    body = json.loads(json.dumps(there.to_json()))
    assert (body["id"], body["state"], body["name"]) == (1, "running", "digits")
    assert read(Overview, body) == there


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


def test_the_best_value_stays_whatever_comes_after_it_and_in_whatever_order():
    seen = picture()
    for seq, (step, kind, value) in enumerate(
        [(8, "validation", 0.5), (16, "training", 0.1), (16, "validation", 0.7), (24, "validation", math.inf)], 6
    ):
        seen = seen.after(message("report", reported(step, kind, value), seq=seq))
    assert seen.trials[0].metrics == {"loss": math.inf}
    assert seen.front.best == Best(value=0.5, step=8, epoch=1.0)
    late = seen.after(message("report", reported(4, value=0.5), seq=20))  # of an older attempt
    assert (late.front.best.step, late.front.step) == (4, 24)


def test_a_note_is_noted_once():
    noted = picture().after(message("note", {"text": "disk full"}))
    assert noted.after(message("note", {"text": "disk full"}, seq=7)).warnings == ("disk full",)


def loss(value: float) -> Best:
    return Best(value=value, step=8, epoch=1.0)


def many(count: int, **fields) -> Overview:
    """Return an experiment of this many paused trials, with lower losses for higher numbers."""
    paused = [trial(TrialState.PAUSED, index=index, best=loss(-index)) for index in range(1, count + 1)]
    seen = picture(paused[0], **fields)
    for seq, each in enumerate(paused[1:], 6):
        seen = seen.after(message("trial", each.to_json(), seq=seq))
    return seen


def test_of_very_many_trials_the_best_are_kept_and_all_are_counted():
    assert [each.index for each in many(50).trials] == list(range(1, 51))
    assert many(50).trial_counts == {}
    seen = many(60)
    assert [each.index for each in seen.trials] == list(range(41, 61))
    assert (seen.counts, seen.state, seen.front.index) == ({"paused": 60}, "queued", 60)


def test_a_trial_that_was_not_looked_at_comes_back_as_one_that_rested():
    runs = many(60).after(message("trial", trial(TrialState.RUNNING, index=1).to_json(), seq=99))
    assert runs.trials[0].index == 1
    assert (runs.counts, runs.state) == ({"paused": 59, "running": 1}, "running")
    gone = runs.after(message("trial", trial(TrialState.PRUNED, index=1).to_json(), seq=100))
    assert gone.trials[0].index == 41
    assert gone.counts == {"paused": 59, "pruned": 1}


def test_attempts_are_those_of_the_trials_that_are_looked_at():
    seen = many(60, attempts=(attempt(),))
    assert seen.attempts == ()
    runs = seen.after(message("attempt", attempt().to_json(), seq=99))
    runs = runs.after(message("trial", trial(TrialState.RUNNING).to_json(), seq=100))
    assert [each.trial for each in runs.attempts] == [1]


def test_the_front_is_the_best_by_the_experiments_metric_or_else_the_first():
    def losses(*values: float | None) -> list:
        return [
            trial(index=index, metrics={"loss": 9.0}, best=None if value is None else loss(value))
            for index, value in enumerate(values, 1)
        ]

    assert picture(*losses(None, None)).front.index == 1
    assert picture(*losses(None, None, 0.5, 0.25, 0.25)).front.index == 4
    upwards = experiment(number=1, config={"metric": {"name": "loss", "mode": "max"}})
    assert picture(*losses(0.5, None, 0.25)).model_copy(update={"experiment": upwards}).front.index == 1
    assert Overview(experiment=experiment(number=1), trials=()).front is None


RUNNING, STARTING, QUEUED, PAUSED = TrialState.RUNNING, TrialState.STARTING, TrialState.QUEUED, TrialState.PAUSED
BEHIND = Wait(reason="2nd in queue; 2 of 2 slots in use", place=2)
SOON = Wait(reason="1 slot free, starting", place=1, starts=True)
IN_SLURM = attempt(state=AttemptState.PENDING)


def searching(*states: TrialState, **fields) -> Overview:
    trials = tuple(trial(state, index=index) for index, state in enumerate(states, 1))
    searches = experiment(number=1, config={"search": Search(method="asha", trials=24)})
    return Overview(experiment=searches, trials=trials, seq=5, **fields)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (searching(STARTING), "running"),
        (searching(TrialState.RELEASING, PAUSED), "running"),
        (searching(PAUSED, RUNNING, QUEUED, wait=BEHIND), "running"),
        (searching(PAUSED, PAUSED), "running"),  # between two trials
        (searching(PAUSED, wait=SOON), "running"),
        (searching(QUEUED), "running"),  # why it waits, and whether, is not known yet
        (searching(), "running"),
        (searching(TrialState.COMPLETED), "running"),
        (searching(wait=BEHIND), "queued"),
        (searching(PAUSED, PAUSED, wait=BEHIND), "queued"),
        (searching(STARTING, PAUSED, attempts=(IN_SLURM,)), "queued"),
    ],
)
def test_a_search_runs_from_its_submission_on_unless_none_of_its_trials_gets_slots(seen, state):
    assert seen.state == state


def test_only_an_experiment_that_was_paused_shows_it():
    held = picture(trial(PAUSED, holds={Hold.ENGINE}), wait=BEHIND)
    assert held.state == "queued"
    for shown in (held, searching(PAUSED), searching(RUNNING)):
        paused = shown.experiment.model_copy(update={"state": ExperimentState.PAUSED})
        assert shown.model_copy(update={"experiment": paused}).state == "paused"
