"""Test the status of a search and its manual control over HTTP."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from jupyter_ext.job.job import Job
from jupyter_ext.views import MIME_TYPE
from jupyter_ext.views.comm_api import answer
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import Conflict, InvalidRequest, NotFound
from kernel_backend.model import events
from kernel_backend.model.experiment import Config, Metric, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from kernel_backend.model.search.effects import Added
from kernel_backend.model.search.records import Search
from kernel_backend.model.states import Hold, TrialState
from kernel_backend.model.views.search_status import Extension
from kernel_backend.spec.assignments import parse_line
from tests.api.served import DEFINITION, Served, archive, report, started, submit, token_of
from tests.support.world import until

METRICS = "def metrics(output, target):\n    return {'error': output}\n"
LINE = "lr=0.01..1:log width=8,16"
SEARCH = Search(method="asha", trials=8, sampler="random", eta=2, first_rung=1)


def search(client: Client, **asked: Any) -> int:
    """Submit a search of 4 epochs, with rungs at 1, 2 and 4, and return its number."""
    id, data = archive(DEFINITION + METRICS)
    client.upload_snapshot(id, data)
    config = Config(epochs=4, metric=Metric(name="error"), search=SEARCH.model_copy(update=asked))
    space = parse_line(LINE.split()).space
    asked_for = Submission(snapshot=id, config=config, space=space, python="/usr/bin/python3", cwd="/", again=True)
    return client.submit(asked_for).experiment.number


def trained(served: Served, client: Client, number: int, trial: int, value: float, unit: int = 1) -> None:
    """Let a trial's newest attempt report a value at the end of an epoch, and exit if its search pauses it."""
    attempt = client.experiment(number).trials[trial - 1].attempt
    key = AttemptId(number, trial, attempt)
    said = client.deliver(
        key, token_of(served, key), Delivery(records=(started(), report(2, float(unit), error=value)))
    )
    if said.instruct == "release":
        served.engine.step_aside(key)

        def left() -> bool:
            now = client.experiment(number).trials[trial - 1]
            return now.state == "paused" or now.attempt > attempt

        until(left, f"trial {trial} rests, or goes on in another attempt")


def begun(client: Client, number: int, count: int) -> None:
    """Wait until this many trials have been created."""
    until(
        lambda: sum(trial.attempt > 0 for trial in client.experiment(number).trials) >= count, f"{count} trials begin"
    )


def test_a_search_stands_as_its_trials_have_said(served: Served, client: Client) -> None:
    number = search(client, parallel=1, eta=4, trials=3)
    for trial, value in enumerate((0.5, math.nan, 0.25), 1):
        begun(client, number, trial)
        trained(served, client, number, trial, value)
    found = client.search(number)
    assert [(row.trial, row.best, row.diverged) for row in found.trials] == [
        (3, 0.25, False),
        (1, 0.5, False),
        (2, None, True),
    ]
    assert [better.trial for better in found.incumbent] == [1, 3]
    assert set(found.params) == {"lr", "width"}
    assert (found.unit, found.units, found.limit, found.closed) == ("epoch", 4, 3, None)
    assert found.brackets[0].rungs[0].results == 3
    assert [row.trial for row in client.search(number, "-best", limit=1, offset=1).trials] == [3]
    assert [line.trial for line in client.search_curves(number).lines] == [3, 1, 2]
    assert "are needed" in client.importance(number).missing

    job = Job(number, client)
    table = job.trials()
    assert list(table.index) == [1, 2, 3]
    assert table.loc[3, "best"] == 0.25
    assert table.loc[3, "lr"] == found.trials[0].params["lr"]
    assert list(table["diverged"]) == [False, True, False]
    assert job.best_params["lr"] == found.trials[0].params["lr"]
    study = job.to_optuna()
    assert [trial.intermediate_values.get(1) for trial in study.trials][::2] == [0.5, 0.25]


def test_a_search_is_listed_as_running_unless_it_waits_for_slots(served: Served, client: Client) -> None:
    first = search(client, parallel=1)
    begun(client, first, 1)
    submit(client)
    token_of(served, AttemptId(first + 1, 1, 1))  # both slots are held
    second = search(client, parallel=1)
    until(lambda: client.experiment(second).state == "queued", "it waits")

    def listed(state: str) -> list[int]:
        return [each.experiment.number for each in client.experiments(state=state, limit=1)]

    assert (listed("running"), listed("queued"), listed("paused")) == ([first], [second], [])
    client.pause(first)
    served.engine.step_aside(AttemptId(first, 1, 1))
    begun(client, second, 1)
    assert (listed("running"), listed("queued"), listed("paused")) == ([second], [], [first])


def test_the_best_of_a_single_training_is_its_best_validation(served: Served, client: Client) -> None:
    number = submit(client).experiment.number
    key, job = AttemptId(number, 1, 1), Job(number, client)
    assert job.best() == {}
    told = [report(step, loss=loss, accuracy=step) for step, loss in ((2, 0.5), (3, 0.2), (4, 0.4))]
    client.deliver(key, token_of(served, key), Delivery(records=(started(), *told)))
    assert job.best() == {"loss": 0.2, "accuracy": 3}
    assert client.experiment(number).trials[0].metrics == {"loss": 0.4, "accuracy": 4}


def test_a_page_steers_its_search_through_the_kernel(served: Served, client: Client) -> None:
    number = search(client, parallel=1)
    begun(client, number, 1)
    trained(served, client, number, 1, 0.5)
    status, body = answer(client, number, "POST", f"/experiments/{number}/trials/1/prune", {})
    assert (status, body["trials"][0]["state"]) == (200, "pruned")
    status, body = answer(client, number, "POST", f"/experiments/{number}/trials/1/promote", {})
    assert (status, body["message"]) == (409, f"trial {number}.1 is pruned: it cannot go on")
    status, body = answer(client, number, "POST", f"/experiments/{number}/extend", {"trials": 30})
    assert (status, body["experiment"]["config"]["search"]["trials"]) == (200, 30)


def test_a_notebook_keeps_how_a_search_stood(served: Served, client: Client) -> None:
    number = search(client, parallel=1, eta=4, trials=2)
    for trial, value in enumerate((0.5, 0.25), 1):
        begun(client, number, trial)
        trained(served, client, number, trial, value)
    kept = Job(number, client)._repr_mimebundle_()[MIME_TYPE]["search"]
    assert [row["trial"] for row in kept["standing"]["trials"]] == [2, 1]
    assert kept["standing"]["brackets"][0]["rungs"][0]["results"] == 2
    assert [line["trial"] for line in kept["curves"]["lines"]] == [2, 1]
    single = submit(client).experiment.number
    assert Job(single, client)._repr_mimebundle_()[MIME_TYPE]["search"] is None


def test_what_is_no_search_says_so(client: Client) -> None:
    number = submit(client).experiment.number
    calls = [
        lambda: client.search(number),
        lambda: client.search_curves(number),
        lambda: client.importance(number),
        lambda: client.promote(number, 1),
        lambda: client.prune(number, 1),
        lambda: client.extend(number, Extension(trials=100)),
    ]
    for call in calls:
        with pytest.raises(Conflict, match=f"#{number} is no search"):
            call()


def test_a_trial_that_a_person_prunes_has_ended_and_the_search_has_heard_it(served: Served, client: Client) -> None:
    number = search(client, parallel=1, eta=4)
    begun(client, number, 1)
    trained(served, client, number, 1, 0.5)
    begun(client, number, 2)
    client.prune(number, 1)
    assert client.experiment(number).trials[0].state == "pruned"
    with pytest.raises(Conflict, match=f"trial {number}.1 is pruned: there is nothing to prune"):
        client.prune(number, 1)
    with pytest.raises(Conflict, match=f"trial {number}.1 is pruned: it cannot go on"):
        client.promote(number, 1)


def test_a_trial_that_a_person_promotes_goes_on_before_any_new_one(served: Served, client: Client) -> None:
    number = search(client, parallel=1, eta=4)
    for trial, value in enumerate((0.9, 0.5), 1):
        begun(client, number, trial)
        if trial == 2:
            client.promote(number, 1)  # the worst of all, and nobody may by rank
        trained(served, client, number, trial, value)
    until(lambda: client.experiment(number).trials[0].attempt == 2, "the first trial goes on")
    row = client.search(number, "trial").trials[0]
    assert (row.trial, row.until, row.attempts) == (1, 4, 2)
    assert len(client.experiment(number).trials) == 2


def test_steering_what_is_not_there_is_told(client: Client) -> None:
    number = search(client)
    with pytest.raises(NotFound, match="99"):
        client.promote(number, 99)
    with pytest.raises(InvalidRequest, match="extend by what"):
        client.extend(number, Extension())
    with pytest.raises(InvalidRequest, match=r"there is no such column \(did you mean width\?\)"):
        client.search(number, "widht")


def test_a_completed_search_goes_on_with_more_trials_and_fewer_are_refused(served: Served, client: Client) -> None:
    number = search(client, parallel=1, trials=1, method="random", eta=4, first_rung=None, sampler=None)
    begun(client, number, 1)
    key = AttemptId(number, 1, 1)
    records = (started(), report(2, 4.0, error=0.5))
    client.deliver(key, token_of(served, key), Delivery(records=records))
    served.engine.end(key)
    until(lambda: client.experiment(number).state == "completed", "it ends")
    client.extend(number, Extension(trials=3))
    begun(client, number, 2)
    overview = client.experiment(number)
    assert overview.experiment.config.search is not None
    assert (overview.experiment.state, overview.experiment.config.search.trials) == ("active", 3)
    with pytest.raises(Conflict, match="1 trials requested, and there are 2 already"):
        client.extend(number, Extension(trials=1))


def test_a_budget_that_is_spent_already_extends_nothing(served: Served, client: Client) -> None:
    number = search(client, max_time=3600.0)
    begun(client, number, 1)
    with pytest.raises(Conflict, match="--max-time"):
        client.extend(number, Extension(max_time=1e-9))
    before = client.search(number)
    assert before.search.max_time == 3600.0


def test_the_command_line_lists_the_best_and_steers(
    service: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = service.client()
    number = search(client, parallel=1, eta=4)
    begun(client, number, 1)
    trained(service, client, number, 1, 0.5)
    assert main(["best", str(number)]) == 0
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert head.split()[:3] == ["trial", "state", "epoch"]
    assert row.split()[0] == f"{number}.1"
    assert "0.5" in row
    assert main(["extend", str(number), "--trials", "20"]) == 0
    assert "of 20 trials" in capsys.readouterr().out
    assert main(["prune", str(number)]) == 2
    assert f"write daylight prune {number}.7" in capsys.readouterr().err
    assert main(["prune", f"{number}.1"]) == 0
    assert "1 pruned" in capsys.readouterr().out


def test_a_search_of_many_resting_trials_is_stopped_in_few_writes(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, now = search(client, trials=250), time.time()
    begun(client, number, 2)  # as many as fit
    client.pause(number)
    store, moved = served.service._store, list[int]()
    known = len(client.trial_rows(number))
    paused = [Added(index, {}) for index in range(known + 1, 251)]
    for trial in store.record(number, [], paused, at=now):
        store.advance_trial(number, trial.index, events.Held(), now, holds=frozenset({Hold.SEARCH}))
    record = store.record
    monkeypatch.setattr(store, "record", lambda *given, **named: moved.append(len(given[2])) or record(*given, **named))
    monkeypatch.setattr(store, "advance_trial", lambda *given, **named: pytest.fail("a write for one trial"))
    client.stop(number)
    until(lambda: store.trial_counts(number).get(TrialState.STOPPED, 0) >= len(paused), "all have ended")
    assert max(moved) <= 100
    assert sum(moved) >= len(paused)
