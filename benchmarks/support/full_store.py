"""Fill a store with a search of many trials and many small experiments, like one that was used for years."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Table, insert, update

from kernel_backend.identity.local import LocalIdentity
from kernel_backend.model.experiment import Config, Experiment, Metric
from kernel_backend.model.launch.launch_spec import token_digest
from kernel_backend.model.resources import Share
from kernel_backend.model.search.records import Complete, Create, Decision, Happening, LogEntry, Reported, Vacancy
from kernel_backend.model.search.records import Search as SearchOptions
from kernel_backend.model.search.space import Space
from kernel_backend.model.states import AttemptState, ExperimentState, Hold, Outcome, TrialState
from kernel_backend.model.trial import Attempt, Best, Failure, Trial
from kernel_backend.search.make import make
from kernel_backend.search.settings import settings_of
from kernel_backend.snapshots.archive import Archive
from kernel_backend.spec.assignments import parse_line
from kernel_backend.store import tables
from kernel_backend.store.sql import SqlStore
from tests.api.served import archive

TOKEN = "of-the-attempts-that-report"  # those of `LIVE` trials of the search, and of the experiments to compare
LIVE = 8  # paused trials of the search, for which a benchmark delivers reports
COMPARED = 20  # paused experiments with reports, to be compared
GANG = (Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),)
TAGS = ("baseline", "augmented", "paper", "wide", "debug")
AT_ONCE = 20_000  # rows of one statement
START = 1.75e9  # when the first experiment was submitted, in seconds since the epoch


class Full(NamedTuple):
    """Describe the content of a full store: experiments of one trial, then those to compare, then the search."""

    experiments: int
    trials: int

    @property
    def compared(self) -> range:
        """Return the numbers of the experiments to compare."""
        return range(self.experiments + 1, self.experiments + 1 + COMPARED)

    @property
    def search(self) -> int:
        """Return the number of the search."""
        return self.compared.stop


def fill(home: Path, trials: int, reports: int, experiments: int, method: str) -> Full:
    """Fill the empty store of a home: `experiments` of one trial, `COMPARED` more, then a paused search of `trials`.

    Each trial of the search and of the experiments to compare has `reports` validations of five metrics, unless the
    search's method ends it earlier.
    """
    full = Full(experiments, trials)
    snapshot, packed = archive()
    Archive(home / "snapshots").put(snapshot, packed)
    store = SqlStore(home / "daylight.db")
    writer = _Writer(store)
    for number in range(1, experiments + 1):
        _small(writer, number, snapshot)
    for number in full.compared:
        _compared(writer, number, reports, snapshot)
    _search(writer, full.search, trials, reports, method, snapshot)
    writer.close()
    store.close()
    return full


class _Writer:
    """Insert rows into many tables in large batches, and number the messages."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._rows: dict[Table, list[dict[str, Any]]] = {}
        self._seq = 0

    def add(self, table: Table, row: dict[str, Any]) -> None:
        if "seq" in table.c:
            self._seq += 1
            row = {**row, "seq": self._seq}
        rows = self._rows.setdefault(table, [])
        rows.append(row)
        if len(rows) >= AT_ONCE:
            self.flush()

    def event(self, at: float, experiment: int, trial: int | None, type: str, data: dict[str, Any]) -> None:
        self.add(tables.events, {"at": at, "experiment": experiment, "trial": trial, "type": type, "data": data})

    def flush(self) -> None:
        with self._store._writing() as tx:
            for table in (tables.experiments, tables.trials, tables.attempts, *self._rows):
                rows = self._rows.pop(table, [])
                if rows:
                    tx.db.execute(insert(table), rows)

    def close(self) -> None:
        self.flush()
        with self._store._writing() as tx:
            tx.db.execute(update(tables.sequence).values(value=self._seq))


def _small(writer: _Writer, number: int, snapshot: str) -> None:
    draw = random.Random(number)
    at, failed = START + 600 * number, draw.random() < 0.1
    state = ExperimentState.FAILED if failed else ExperimentState.COMPLETED
    params = {"lr": 10 ** draw.uniform(-4, -1), "width": draw.choice([32, 64, 128])}
    about = _experiment(number, snapshot, at, Config(epochs=10, threads=1), state, params, Space())
    tags = tuple(draw.sample(TAGS, draw.randrange(3)))
    writer.add(tables.experiments, tables.to_row(about.model_copy(update={"tags": tags, "note": f"run {number}"})))
    value = draw.random()
    failure = Failure(rank=0, type="ValueError", message="no such file: data.npz", step=3) if failed else None
    trial = _trial(number, 1, TrialState.FAILED if failed else TrialState.COMPLETED, params, 10, value, at)
    _add_trial(writer, trial.model_copy(update={"failure": failure}), at)


def _compared(writer: _Writer, number: int, reports: int, snapshot: str) -> None:
    at, params = START + 600 * number, {"lr": 10 ** (-number % 4 - 1.0), "width": 32 * (1 + number % 3)}
    paused = ExperimentState.PAUSED
    config = Config(epochs=2 * reports, threads=1)
    writer.add(tables.experiments, tables.to_row(_experiment(number, snapshot, at, config, paused, params, Space())))
    trial = _trial(number, 1, TrialState.PAUSED, params, reports, value_of(number, reports), at)
    _add_trial(writer, trial.model_copy(update={"holds": frozenset({Hold.USER})}), at)
    for unit in range(1, reports + 1):
        _report(writer, number, 1, unit, value_of(number, unit), at)


def _experiment(
    number: int, snapshot: str, at: float, config: Config, state: ExperimentState, params: dict[str, Any], space: Space
) -> Experiment:
    owner = LocalIdentity("")._person.name
    return Experiment(
        number=number,
        name=f"digits {number % 97}",
        state=state,
        owner=owner,
        group=owner,
        snapshot=snapshot,
        config=config,
        params=params,
        space=space,
        python="python",
        cwd="/",
        notebook=f"/home/{owner}/digits-{number % 31}.ipynb",
        created_at=at,
        ended_at=None if state is ExperimentState.PAUSED else at + 300,
    )


def _trial(
    number: int, index: int, state: TrialState, params: dict[str, Any], unit: int, value: float, at: float
) -> Trial:
    return Trial(
        experiment=number,
        index=index,
        state=state,
        holds=frozenset({Hold.SEARCH}) if state is TrialState.PAUSED else frozenset(),
        params=params,
        attempt=1,
        queued_at=at,
        step=100 * unit,
        epoch=float(unit),
        total_steps=100 * unit,
        checkpoint=f"{100 * unit}-1",
        metrics=metrics(value),
        best=Best(value=1 - value, step=100 * unit, epoch=float(unit)),
        training={"loss": value, "lr": 1e-3},
        ended_at=None if state is TrialState.PAUSED else at + 300,
    )


def metrics(value: float) -> dict[str, float]:
    """Return the five metrics of a report: a loss, and four that follow it."""
    return {"loss": value, "accuracy": 1 - value, "f1": 1 - value * 1.1, "precision": 1 - value / 2, "recall": value**2}


def _add_trial(writer: _Writer, trial: Trial, at: float) -> None:
    """Add a trial with its attempt, and the messages that both leave."""
    attempt = Attempt(
        experiment=trial.experiment,
        trial=trial.index,
        number=1,
        state=AttemptState.ENDED,
        placement=GANG,
        created_at=at,
        granted_at=at,
        ended_at=at + 300,
        outcome=Outcome.RELEASED if trial.state is TrialState.PAUSED else Outcome.OK,
        backend="torch",
        backend_reason="chosen",
        guarantee="the same bits on this kind of CPU, with this torch and as many threads",
    )
    writer.add(tables.trials, tables.to_row(trial) | {"uid": f"{zlib.crc32(trial.id.encode()):08x}"})
    writer.add(tables.attempts, tables.to_row(attempt) | {"token_digest": token_digest(TOKEN)})
    for _ in range(3):
        writer.event(at, trial.experiment, trial.index, "trial", trial.to_json())
        writer.event(at, trial.experiment, trial.index, "attempt", attempt.to_json())


def _search(writer: _Writer, number: int, trials: int, reports: int, method: str, snapshot: str) -> None:
    at = START + 600 * number
    space = parse_line(["lr=1e-4..1e-1:log", "width=32,64,128", "drop=0..0.5", "act=relu,gelu,silu"]).space
    options = SearchOptions(method=method, trials=trials, sampler="random")
    config = Config(search=options, epochs=reports, threads=1, metric=Metric(name="accuracy", mode="max"))
    about = _experiment(number, snapshot, at, config, ExperimentState.PAUSED, {}, space)
    writer.add(tables.experiments, tables.to_row(about))
    entries = itertools.count(1)
    units: dict[int, int] = {}
    for trial, params, decision in _trained(writer, about, at, entries, units, trials):
        ended = isinstance(decision, Complete) and trial > LIVE
        state = TrialState.COMPLETED if ended else TrialState.PAUSED
        _add_trial(writer, _trial(number, trial, state, params, units[trial], value_of(trial, units[trial]), at), at)


def _trained(
    writer: _Writer, experiment: Experiment, at: float, entries: Iterator[int], units: dict[int, int], trials: int
) -> Iterator[tuple[int, dict[str, Any], Decision]]:
    """Run a searcher's trials one after the other; yield each with the number of units that it trained."""
    searcher = make(settings_of(experiment.config), experiment.space)
    params: dict[int, dict[str, Any]] = {}
    last: dict[int, Decision] = {}

    def log(event: Happening, decision: Decision | None) -> None:
        entry = LogEntry(number=next(entries), at=at + len(params), event=event, decision=decision)
        row = {**tables.to_row(entry), "experiment": experiment.number, "trial": entry.trial}
        writer.add(tables.search_log, row)

    while (granted := searcher.on_slot()) is not None:
        log(Vacancy(), granted)
        trial = granted.trial
        if isinstance(granted, Create):
            params[trial] = dict(granted.params)
        for unit in itertools.count(units.get(trial, 0) + 1):
            value = value_of(trial, unit)
            _report(writer, experiment.number, trial, unit, value, at)
            verdict = searcher.on_report(trial, unit, 1 - value)
            log(Reported(trial=trial, unit=unit, value=1 - value, seq=writer._seq), verdict)
            units[trial], last[trial] = unit, verdict
            if verdict.type != "continue":
                break
    for trial in sorted(params)[:trials]:
        yield trial, params[trial], last[trial]


def value_of(trial: int, unit: int) -> float:
    """Return the loss of a trial after a unit: the same in every run."""
    noise = random.Random(1000 * trial + unit).random()
    return float(0.05 + 0.9 * ((trial * 2654435761) % 1000 / 1000) * unit**-0.5 + 0.01 * noise)


def _report(writer: _Writer, number: int, trial: int, unit: int, value: float, at: float) -> None:
    row = {"experiment": number, "trial": trial, "attempt": 1, "at": at + unit, "kind": "validation"}
    writer.add(tables.reports, {**row, "step": 100 * unit, "epoch": float(unit), "metrics": metrics(value)})
