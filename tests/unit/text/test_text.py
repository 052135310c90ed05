"""Test the text that is printed of an experiment."""

from __future__ import annotations

import math

import pytest

from jupyter_ext.views.card import html, plain
from kernel_backend.model.checkpoints import CheckpointDecision, GarbageReport
from kernel_backend.model.experiment import Config, Experiment, Metric
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import Search
from kernel_backend.model.sizes import size
from kernel_backend.model.states import ExperimentState, TrialState
from kernel_backend.model.stream import Message
from kernel_backend.model.trial import Best, Failure
from kernel_backend.model.views.overview import CheckpointInfo, Overview, Wait
from kernel_backend.model.views.starting import StartPhase, starting_text
from kernel_backend.model.webhooks.payload import sentence
from kernel_backend.text import (
    OWNED_HEAD,
    TABLE_HEAD,
    already_text,
    duration,
    epoch_text,
    failure_text,
    guarantee_text,
    hang_text,
    head_text,
    message_line,
    new_notes,
    number,
    params_text,
    progress_line,
    result_text,
    search_text,
    state_text,
    table_row,
)
from kernel_backend.text.dates import when_text
from kernel_backend.text.next_steps import next_text
from kernel_backend.text.stored_files import checkpoint_head, checkpoint_row, collected_lines
from tests.support.builders import attempt, trial, user_error


def experiment(state: ExperimentState = ExperimentState.ACTIVE, **fields) -> Experiment:
    defaults = {
        "number": 12,
        "name": "digits",
        "owner": "ada",
        "group": "ada",
        "snapshot": "0" * 64,
        "config": Config(slots=2, epochs=10),
        "params": {},
        "python": "python",
        "cwd": "/",
        "notebook": None,
        "created_at": 100.0,
    }
    return Experiment(state=state, **(defaults | fields))


def overview(*trials, **fields) -> Overview:
    return Overview(
        experiment=fields.pop("experiment", experiment()), trials=trials or (trial(experiment=12),), **fields
    )


def message(type: str, data: dict) -> Message:
    return Message(seq=9, at=0.0, experiment=12, type=type, data=data)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0.0 s"),
        (0.42, "0.4 s"),
        (12.4, "12 s"),
        (59.7, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (97200, "1 d 03 h"),
    ],
)
def test_durations(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.41234, "0.4123"),
        (12.0, "12"),
        (1.23e-5, "1.23e-05"),
        (1e9, "1e+09"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_keep_the_digits_that_matter(value, said):
    assert number(value) == said


def test_sizes():
    assert [size(count) for count in (512, 1500, 58_900_000, 7 * 10**15)] == ["512 B", "1.5 kB", "58.9 MB", "7000.0 TB"]


@pytest.mark.parametrize(
    ("epoch", "said"), [(0, "0/10"), (0.1, "1/10"), (3.0, "3/10"), (3.0000000001, "3/10"), (11, "10/10")]
)
def test_the_epoch_that_goes_on_is_told(epoch, said):
    assert epoch_text(epoch, 10) == f"epoch {said}"


def test_the_epoch_of_a_program_that_alone_knows_when_it_ends_is_told_without_an_end():
    assert epoch_text(2.5, None) == "epoch 3"


def test_a_validation_is_a_line():
    report = StoredReport(
        seq=1,
        trial=1,
        attempt=1,
        at=0,
        kind="validation",
        step=141,
        epoch=3,
        metrics={"accuracy": 0.912, "loss": 0.412},
    )
    line = "#12  epoch 3/10  step 141  loss 0.412  accuracy 0.912"
    assert progress_line(trial(experiment=12), Config(epochs=10), report) == line
    assert progress_line(trial(experiment=12, index=3), Config(epochs=10)) == "#12.3  epoch 0/10  step 0"
    assert message_line(message("report", report.to_json()), overview(), overview()) == line


def test_training_reports_are_no_lines():
    data = {"kind": "training", "step": 1}
    assert message_line(message("report", data), overview(), overview()) is None


def test_a_state_comes_with_its_reason():
    queued = trial(TrialState.QUEUED, experiment=12)
    wait = Wait(reason="2nd in queue; 2 of 2 slots in use", place=2, estimate=720, earliest=300, latest=9000)
    assert (
        state_text(overview(queued, wait=wait))
        == "queued: 2nd in queue; 2 of 2 slots in use; in about 12 min (5 min to 2 h)"
    )
    failed = overview(trial(TrialState.FAILED, failure=user_error()), experiment=experiment(ExperimentState.FAILED))
    assert state_text(failed) == "failed: ValueError"
    assert state_text(overview()) == "running"


def searching(*states: TrialState, ends: ExperimentState = ExperimentState.ACTIVE, **fields) -> Overview:
    trials = [trial(state, experiment=12, index=index) for index, state in enumerate(states, 1)]
    searches = experiment(ends, config=Config(slots=2, search=Search(method="asha", trials=24)))
    return overview(*trials, experiment=searches, **fields)


def test_the_state_of_a_search_comes_with_its_trials():
    waits = Wait(reason="next in queue; 2 slots requested, 0 of 2 free", place=1)
    assert state_text(searching(TrialState.RUNNING, TrialState.PAUSED)) == "running \N{MIDDLE DOT} 2 of 24"
    assert state_text(searching(TrialState.PAUSED, wait=waits)) == (
        "waiting for slots \N{MIDDLE DOT} 1 of 24: next in queue; 2 slots requested, 0 of 2 free"
    )
    paused = searching(TrialState.RELEASING, ends=ExperimentState.PAUSED, wait=waits)
    assert state_text(paused) == "paused \N{MIDDLE DOT} 1 of 24"
    unlimited = experiment(config=Config(search=Search(method="asha", budget=60.0)))
    assert state_text(overview(experiment=unlimited)) == "running \N{MIDDLE DOT} 1 trial"
    assert table_row(searching(TrialState.RUNNING), now=165.0)[2:4] == ("running \N{MIDDLE DOT} 1 of 24", "")


def test_trials_that_a_search_paused_have_stopped_early_once_it_has_ended():
    states = (TrialState.PAUSED, TrialState.COMPLETED, TrialState.PAUSED)
    assert search_text(searching(*states)) == "3 of 24 trials: 2 paused, 1 completed"
    ended = searching(*states, ends=ExperimentState.COMPLETED)
    assert search_text(ended) == "3 of 24 trials: 2 stopped early, 1 completed"
    assert table_row(ended, now=165.0)[2:4] == ("completed", "3 of 24 trials")


TRAINED = {
    "experiment": 12,
    "step": 400,
    "epoch": 8.0,
    "metrics": {"loss": 0.21, "accuracy": 0.94607},
    "best": Best(value=0.969712, step=300, epoch=6.0),
}
ACCURACY = Metric(name="accuracy", mode="max")


def trained(ends: ExperimentState = ExperimentState.ACTIVE, search: Search | None = None, **fields) -> Overview:
    config = Config(epochs=8, metric=ACCURACY, search=search, **fields)
    return overview(trial(**TRAINED), experiment=experiment(ends, config=config))


def test_an_experiment_has_one_number_the_best_with_its_place_and_the_newest_beside_it():
    best = "accuracy 0.9697 best, epoch 6"
    assert result_text(trained()) == f"{best} \N{MIDDLE DOT} now 0.9461"
    assert result_text(trained(ExperimentState.COMPLETED)) == f"{best} \N{MIDDLE DOT} last 0.9461"
    assert result_text(trained(search=Search(method="asha"))) == "accuracy 0.9697 best, trial 12.1, epoch 6"
    assert result_text(trained(steps=400)).startswith("accuracy 0.9697 best, step 300 ")
    newest = trial(**TRAINED | {"metrics": {"accuracy": 0.969712}})
    assert result_text(overview(newest, experiment=trained().experiment)) == best


def test_before_the_first_validation_its_number_is_what_it_trains_with():
    assert result_text(overview()) == ""
    assert result_text(overview(trial(experiment=12, training={"loss": 0.5}))) == "training loss 0.5"


@pytest.mark.parametrize("search", [None, Search(method="asha", trials=1)], ids=["single", "search"])
def test_list_card_and_notice_say_the_same_number(search):
    ended = trained(ExperimentState.COMPLETED, search)
    said = result_text(ended)
    assert table_row(ended, now=165.0)[TABLE_HEAD.index("result")] == said
    assert sentence("completed", ended) == f"#12 digits completed: {said}"
    assert all(said in card for card in (plain(ended, 165.0), html(ended, 165.0), search_text(ended) or said))


def test_a_gang_that_is_released_saves_a_checkpoint():
    assert state_text(overview(trial(TrialState.RELEASING, experiment=12))) == "saving a checkpoint"


def test_a_failure_shows_the_users_own_lines():
    assert failure_text(user_error()).splitlines() == [
        "ValueError: boom  (rank 0, step 7)",
        "  cell [4] line 3, in loss",
        "    raise ValueError('boom')",
    ]
    assert failure_text(Failure(rank=0, type="SIGKILL", message="")) == "SIGKILL  (rank 0)"


def test_a_change_of_state_is_told_once():
    queued, running = overview(trial(TrialState.QUEUED, experiment=12)), overview()
    assert message_line(message("trial", {}), queued, running) == "#12  running"
    assert message_line(message("trial", {}), running, running) is None


def test_attempts_tell_how_they_ended_and_where_they_go_on():
    def line(**fields) -> str | None:
        return message_line(message("attempt", attempt(**fields).to_json()), overview(), overview())

    assert line(outcome="failed", failure=user_error()) == "#12  attempt 1 failed: ValueError: boom (cell [4] line 3)"
    assert line(outcome="lost") == "#12  attempt 1 was lost: its launcher was killed"
    gone = Failure(rank=0, type="ForkserverLost", message="the process that ranks are forked from has ended")
    assert line(outcome="lost", failure=gone) == f"#12  attempt 1 was lost: {gone.message}"
    assert line(number=2, state="placed", resume_from="150-1") == "#12  attempt 2 goes on from step 150"
    assert line(number=2, state="placed") == "#12  attempt 2 begins anew, from the start"
    assert line() is None
    assert message_line(message("note", {"text": "disk full"}), overview(), overview()) == "#12  disk full"


def test_only_an_attempt_that_hung_has_stacks_to_show():
    hung = Failure(rank=1, type="Hang", message="rank 1 made no progress for 60 s", traceback="rank 1:\n  sleep\n")
    shown = overview(attempts=(attempt(failure=user_error()), attempt(2, failure=hung)))
    assert hang_text(shown, 1, 2) == "rank 1 made no progress for 60 s\nrank 1:\n  sleep"
    assert hang_text(shown, 1, 1) == hang_text(shown, 2, 2) == hang_text(shown, 1, 0) == ""


def test_resuming_what_was_not_paused_says_what_it_does():
    assert already_text(overview()) == ["it is running already"]
    assert already_text(overview(experiment=experiment(ExperimentState.PAUSED))) == []


@pytest.mark.parametrize(
    ("state", "told", "said"),
    [
        ("starting", None, "preparing 2 slots: copying files, starting processes (15 s)"),
        ("starting", "starting", "preparing 2 slots: importing torch (12 s)"),
        ("starting", "building", "preparing 2 slots: building the model, reading data (12 s)"),
        ("running", "first step", "running: taking the first step (12 s)"),
        ("running", None, "running"),
        ("releasing", "first step", "saving a checkpoint"),
    ],
)
def test_a_start_says_what_it_does_and_for_how_long(state, told, said):
    began = overview(trial(TrialState(state), experiment=12), attempts=(attempt(created_at=50.0, granted_at=100.0),))
    phase = StartPhase(told, 103.0) if told else None
    shown = began.model_copy(update={"starting": starting_text(began, phase, 115.0)})
    assert state_text(shown) == said
    assert said in plain(shown, 115.0)


def test_a_start_that_takes_long_points_to_the_log():
    began = overview(trial(TrialState.STARTING, experiment=12), attempts=(attempt(),))
    said = starting_text(began, StartPhase("starting", 100.0), 175.0)
    assert said == "preparing 2 slots: importing torch (1 min 15 s); longer than usual: look at the log"


@pytest.mark.parametrize("phase", ["fetching", "step"])
def test_a_training_whose_data_is_fetched_says_how_far_it_is(phase):
    state = TrialState.STARTING if phase == "fetching" else TrialState.RUNNING
    began = overview(trial(state, experiment=12), attempts=(attempt(),))
    told = "fetching train: 3.1 GB of 12.0 GB, 220.0 MB/s, 41 s left"
    text = starting_text(began, StartPhase(phase, 100.0, told), 175.0)
    assert state_text(began.model_copy(update={"starting": text})).endswith(told)


def test_what_a_command_or_a_cell_does_is_not_known_nor_what_one_trial_of_a_search_does():
    def said(config: Config, **fields) -> str:
        started = overview(trial(experiment=12, **fields), experiment=experiment(config=config), attempts=(attempt(),))
        return starting_text(started, StartPhase("step", 100.0) if fields else None, 115.0)

    assert said(Config(form="command")) == "the command has started"
    assert said(Config(form="plain")) == "the cell has started"
    assert said(Config(form="command"), training={"loss": 0.5}) == ""
    assert said(Config(search=Search(method="grid"))) == ""


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"epochs": 10},
            "daylight.job(12).load(), %dl export 12 --model model-12, %dl continue 12 --epochs 20, %dl rerun 12",
        ),
        (
            {"steps": 50},
            "daylight.job(12).load(), %dl export 12 --model model-12, %dl continue 12 --steps 100, %dl rerun 12",
        ),
        ({"epochs_unknown": True}, "daylight.job(12).load(), %dl export 12 --model model-12, %dl rerun 12"),
        ({"form": "plain"}, "daylight.job(12).result(), %dl rerun 12"),
        (
            {"search": Search(method="grid")},
            "daylight.job(12).load(), %dl export 12.3 --model model-12, %dl continue 12.3 --epochs 2, %dl rerun 12",
        ),
    ],
)
def test_a_training_that_has_ended_can_be_taken_on(config, said):
    done = experiment(ExperimentState.COMPLETED, config=Config(**config), ended_at=165.0)
    reached = trial(TrialState.COMPLETED, experiment=12, index=3, step=9)
    shown = overview(reached, experiment=done)
    assert next_text(shown, "%dl") == f"take it on: {said}"
    assert f"take it on: {said}" in plain(shown, 165.0)


def test_where_there_is_no_result_nothing_is_taken_on():
    command = experiment(ExperimentState.COMPLETED, config=Config(form="command"), ended_at=165.0)
    without = experiment(ExperimentState.STOPPED, ended_at=165.0)
    failed = experiment(ExperimentState.FAILED, ended_at=165.0)
    reached = trial(TrialState.COMPLETED, experiment=12, step=9)
    shown = [overview(reached, experiment=each) for each in (command, failed)]
    shown += [overview(reached), overview(experiment=without)]
    assert [next_text(each, "%dl") for each in shown] == [""] * 4


def test_the_head_and_the_row_tell_the_same():
    shown = overview(attempts=(attempt(backend="horovod"),))
    assert head_text(shown, now=165.0) == "#12 digits  running  2 slots, horovod  1 min 05 s"
    assert table_row(shown, now=165.0) == ("12", "digits", "running", "0/10", "", "", "2", "1 min 05 s")
    granted = overview(attempts=(attempt(granted_at=100.0), attempt(2, granted_at=160.0)))
    assert table_row(granted, now=165.0)[-3] == when_text(100.0, 165.0)
    late = overview(attempts=(attempt(2, granted_at=160.0),))  # the first of many attempts are left out
    assert table_row(late, now=165.0)[-3] == when_text(late.experiment.created_at, 165.0)
    assert len(table_row(shown, now=165.0)) == len(TABLE_HEAD)
    owner, group = shown.experiment.owner, shown.experiment.group
    assert table_row(shown, now=165.0, owner=True)[:4] == ("12", owner, group, "digits")
    assert len(table_row(shown, now=165.0, owner=True)) == len(OWNED_HEAD)
    assert params_text({"width": 64, "act": "relu"}) == "width=64 act='relu'"


def test_the_guarantee_is_that_of_the_newest_attempt_which_said_one():
    first, second = attempt(guarantee="exact, at 2 slots"), attempt(number=2, guarantee="exact, at 4 slots")
    assert guarantee_text(overview()) == ""
    assert guarantee_text(overview(attempts=(first, second))) == "exact, at 4 slots"
    assert guarantee_text(overview(attempts=(first, attempt(number=2)))) == "exact, at 2 slots"


def test_a_checkpoint_says_its_value_and_why_it_is_kept():
    info = CheckpointInfo(id="500-2", trial=1, step=500, epoch=2.5, bytes=1_500_000, at=90.0, metrics={"loss": 0.25})
    row = checkpoint_row(info, "loss", now=100.0)
    assert row == ("1", "500-2", "500", "2.50", "0.25", "1.5 MB", "10 s ago", "not read", "not by the rules")
    assert len(checkpoint_head("loss")) == len(row)
    kept = info.model_copy(update={"verified": "yes", "kept": ("best", "pinned")})
    assert checkpoint_row(kept, "accuracy", now=100.0)[4:] == ("", "1.5 MB", "10 s ago", "yes", "best, pinned")


def test_what_goes_is_said_with_its_size_and_the_sum():
    goes = [
        CheckpointDecision(experiment=12, trial=1, id=f"{n}-1", bytes=1500, reasons=("beyond the rules",))
        for n in (1, 2)
    ]
    stays = CheckpointDecision(experiment=12, trial=1, id="3-1", bytes=1500, reasons=("best", "latest"))
    found = GarbageReport(goes=tuple(goes), stays=(stays,), running=("12.2",), problems=("no",))
    assert collected_lines(found, dry_run=True) == [
        "12.1  1-1  1.5 kB  beyond the rules",
        "12.1  2-1  1.5 kB  beyond the rules",
        "no",
        "2 checkpoints would go, 3.0 kB",
    ]
    assert collected_lines(found, dry_run=False, verbose=True)[2:4] == [
        "12.1  3-1  1.5 kB  stays: best, latest",
        "12.2  is being trained: it applies the rules itself",
    ]
    assert collected_lines(GarbageReport(), dry_run=False) == ["no checkpoints went"]


def test_only_what_is_new_is_told_of_an_answer():
    before, after = overview(warnings=("old",)), overview(warnings=("old", "new"))
    assert new_notes(before, after) == ["new"]
