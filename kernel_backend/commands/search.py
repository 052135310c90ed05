"""Define the verbs of searches: list trials, and steer a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernel_backend.client import Client
from kernel_backend.commands.answer import Answer, Table, Text
from kernel_backend.commands.verb import JSON, NUMBER, Call, Verb, argument, count
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import parse_duration, parse_slot_time
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import Extension, SearchStatus, TrialRow
from kernel_backend.text import duration, head_text, number, search_text, trial_word, value_text


def trials_head(status: SearchStatus) -> tuple[str, ...]:
    """Return the column names of the table of trials: those of each trial, then one for each hyperparameter."""
    metric = status.metric.name
    return ("trial", "state", status.unit, f"best {metric}", f"newest {metric}", "slot time", *status.params)


def trial_cells(status: SearchStatus, row: TrialRow) -> list[str]:
    """Return the texts of a trial's row in the table of trials."""
    word = trial_word(row.state, status.over)
    state = f"{word}: {row.failure}" if row.failure else word
    since = "" if row.best_unit is None else f" after {status.unit} {row.best_unit}"  # the best beside it is from then
    return [
        f"{status.number}.{row.trial}",
        f"{state}, diverged{since}" if row.diverged else state,
        f"{row.unit}/{status.units}",
        "" if row.best is None else number(row.best),
        "" if row.value is None else number(row.value),
        duration(row.seconds) if row.seconds else "",
        *(value_text(row.params[name]) if name in row.params else "" for name in status.params),
    ]


def extension(trials: int | None, budget: str | float | None, max_time: str | float | None) -> Extension:
    """Parse the new limits of a search: numbers are in seconds, texts like `20gpuh` and `8h`. Raises InvalidRequest."""
    return Extension(
        trials=trials,
        budget=parse_slot_time(budget) if isinstance(budget, str) else budget,
        max_time=parse_duration(max_time) if isinstance(max_time, str) else max_time,
    )


def best_rows(client: Client, number: int, count: int, sort: str = "best") -> tuple[Sequence[str], list[list[str]]]:
    """Return column names and up to `count` rows of the table of a search's trials, best first unless `sort` is set."""
    status = client.search(number, sort, min(count, 1000))
    rows = status.trials if count <= 1000 else client.trial_rows(number, sort, count)
    return trials_head(status), [trial_cells(status, row) for row in rows]


def _best(call: Call) -> Answer:
    return _table(call, "best")


def _trials(call: Call) -> Answer:
    return _table(call, call.arguments.sort)


def _table(call: Call, sort: str) -> Answer:
    client, experiment, most = call.client, call.reference.experiment, call.arguments.count
    if call.json:
        return Answer({"trials": client.trial_rows(experiment, sort, most)})
    head, rows = best_rows(client, experiment, most, sort)
    return Answer(None, [Table(head, rows, "no trials yet")])


def _steer(name: str, text: str, change: Callable[[Client, int, int], Overview]) -> Verb:
    def run(call: Call) -> Answer:
        experiment, trial, _ = call.reference
        if trial is None:
            raise InvalidRequest(f"{name} is about one trial: write {call.command} {experiment}.7")
        return _searched(change(call.client, experiment, trial))

    return Verb(name, text, run, (TRIAL, JSON), (f"{name} 12.7",), client=(name,), job=(name,))


def _extend(call: Call) -> Answer:
    options = call.arguments
    asked = extension(options.trials, options.budget, options.max_time)
    return _searched(call.client.extend(call.reference.experiment, asked))


def _searched(overview: Overview) -> Answer:
    return Answer(overview, [Text([head_text(overview, time.time()), search_text(overview)])])


TRIAL = replace(NUMBER, complete="trial")
VERBS = (
    Verb(
        "best",
        "list the best trials of a search",
        _best,
        (
            NUMBER,
            argument("-n", dest="count", metavar="N", type=count, default=10, help="at most so many [10]"),
            JSON,
        ),
        ("best 12", "best 12 -n 3 --json"),
        client=("search",),
        job=("best", "best_params"),
    ),
    Verb(
        "trials",
        "list the trials of a search",
        _trials,
        (
            NUMBER,
            argument(
                "--sort",
                metavar="COLUMN",
                default="trial",
                help="a column, such as trial, best, state, seconds or lr; -lr reverses the order [trial]",
                complete="column",
            ),
            argument("-n", dest="count", metavar="N", type=count, default=1000, help="at most so many [1000]"),
            JSON,
        ),
        ("trials 12 --sort=-lr", "trials 12 --json"),
        client=("trial_rows",),
        job=("trials",),
    ),
    _steer("promote", "promote a trial of a search next, whatever its rank", Client.promote),
    _steer("prune", "prune a trial of a search for good", Client.prune),
    Verb(
        "extend",
        "give a search more trials or time; a completed one is reopened",
        _extend,
        (
            NUMBER,
            argument("--trials", metavar="N", type=count, help="so many trials in all"),
            argument("--budget", metavar="TIME", help="slot time of all trials, in all: 20gpuh, 2slot-h, 30m"),
            argument("--max-time", metavar="TIME", help="time since the submission, in all: 8h"),
            JSON,
        ),
        ("extend 12 --trials 100", "extend 12 --budget 40gpuh"),
        client=("extend",),
        job=("extend",),
    ),
)
