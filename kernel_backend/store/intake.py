"""Store the records that an attempt has written (its spool), each once.

If several reports arrive for one step, the first value of each metric is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Dialect, Table, delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg

from kernel_backend.errors import InvalidRequest
from kernel_backend.model import events
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import (
    ArtifactSaved,
    Committed,
    Fact,
    Guarantee,
    Note,
    Report,
    SpoolRecord,
    Started,
    Traced,
)
from kernel_backend.model.states import AttemptState, TrialState
from kernel_backend.model.trial import Attempt, Best, Trial, checkpoint_step
from kernel_backend.model.views.best import better
from kernel_backend.store.tables import artifacts, attempts, experiments, facts, reports, to_row, to_text
from kernel_backend.store.transaction import AT_ONCE, Transaction, advanced, changed, get_attempt, get_trial

_Insert = sqlite.Insert | postgresql.Insert
_INSERT: dict[str, Callable[[Table], _Insert]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def _first_word_wins(insert: _Insert, dialect: Dialect) -> str:
    unless_known = insert.on_conflict_do_nothing(index_elements=["experiment", "trial", "kind", "step"])
    return str(unless_known.compile(dialect=dialect))


# Raw SQL with named parameters: for a thousand rows SQLAlchemy's work per row would dominate.
_FIRST_WORD_WINS = {
    "sqlite": _first_word_wins(sqlite.insert(reports), sqlite.dialect(paramstyle="named")),
    "postgresql": _first_word_wins(postgresql.insert(reports), psycopg.dialect(paramstyle="pyformat")),  # type: ignore[no-untyped-call]
}


def take_in(tx: Transaction, key: AttemptId, records: Sequence[SpoolRecord], at: float) -> int:
    """Store records of an attempt within one transaction, each once; return the number of the newest."""
    attempt = get_attempt(tx.db, key)
    trial = get_trial(tx.db, key.experiment, key.trial)
    fresh = unseen(records, attempt)
    if not fresh:
        return attempt.accepted
    if attempt.number < trial.attempt:
        fresh = _before_successor(tx.db, key, fresh)
    fresh = _spelled(tx.db, key, fresh)
    attempt, trial = _start(tx, attempt, trial, fresh, at)
    attempt = _traced(tx, _guaranteed(tx, attempt, fresh, at), fresh, at)
    attempt = changed(attempt, {"accepted": records[-1].number})
    tx.save(attempt)
    tx.save(_progress(tx, attempt, trial, fresh, at))
    return attempt.accepted


def add_validation(tx: Transaction, key: AttemptId, report: Report) -> None:
    """Store a validation of a trial that came from an evaluation, unless its step has these metrics already."""
    attempt, trial = get_attempt(tx.db, key), get_trial(tx.db, key.experiment, key.trial)
    tx.save(_progress(tx, attempt, trial, _spelled(tx.db, key, [report]), report.at))


def unseen(records: Sequence[SpoolRecord], attempt: Attempt) -> Sequence[SpoolRecord]:
    """Return those records of an attempt that are not stored yet; raises InvalidRequest if they are out of order.

    Gaps are allowed: a full disk may lose a record, and later records must still be accepted.
    """
    if not all(0 < before.number < after.number for before, after in pairwise(records)):
        raise InvalidRequest(f"attempt {attempt.id} sent records out of order: send them by number, from 1 up")
    return [record for record in records if record.number > attempt.accepted]


def _spelled(db: Connection, key: AttemptId, records: Sequence[SpoolRecord]) -> Sequence[SpoolRecord]:
    """Return the records with the metric of the experiment under its own name, however the program spells it.

    So whatever reads stored validations, also in a browser, finds the metric by its name.
    """
    if not any(_is_validation(record) for record in records):
        return records
    config: Config = db.execute(select(experiments.c.config).where(experiments.c.number == key.experiment)).scalar_one()
    return [
        record.model_copy(update={"metrics": config.metric.spelled(record.metrics)})
        if isinstance(record, Report) and _is_validation(record)
        else record
        for record in records
    ]


def _is_validation(record: SpoolRecord) -> bool:
    return isinstance(record, Report) and record.kind == "validation"


def _before_successor(db: Connection, key: AttemptId, records: Sequence[SpoolRecord]) -> Sequence[SpoolRecord]:
    """Return those records of a fenced attempt (a newer one exists) that may still be stored.

    These are reports and artifacts up to the step from which the next attempt resumed.
    """
    here = attempts.c
    later = (here.experiment == key.experiment, here.trial == key.trial, here.number > key.number)
    query = select(here.resume_from).where(*later).order_by(here.number).limit(1)
    last = checkpoint_step(db.execute(query).scalar_one())
    return [record for record in records if isinstance(record, Report | ArtifactSaved) and record.step <= last]


def _start(
    tx: Transaction, attempt: Attempt, trial: Trial, records: Sequence[SpoolRecord], at: float
) -> tuple[Attempt, Trial]:
    """If the records say that the ranks have started, set attempt and trial to running, and publish both.

    Return the attempt and the trial, updated or not.
    """
    word = next((record for record in records if isinstance(record, Started)), None)
    if word is None:
        return attempt, trial
    facts = {"backend": word.backend, "backend_reason": word.reason, "guarantee": word.guarantee}
    if attempt.state is AttemptState.PLACED:
        attempt = advanced(attempt, events.Started(), at, facts)
    else:
        attempt = changed(attempt, facts)
    if trial.state is TrialState.STARTING:
        trial = advanced(trial, events.Started(), at, {"total_steps": word.total_steps})
    else:
        trial = changed(trial, {"total_steps": word.total_steps})
    tx.publish(at, attempt)
    tx.publish(at, trial)
    return attempt, trial


def _guaranteed(tx: Transaction, attempt: Attempt, records: Sequence[SpoolRecord], at: float) -> Attempt:
    """Set the attempt's reproducibility guarantee to the newest one among the records, if any, and publish it.

    Return the attempt.
    """
    newest = [record.text for record in records if isinstance(record, Guarantee)][-1:]
    for text in newest:
        attempt = changed(attempt, {"guarantee": text})
        tx.publish(at, attempt)
    return attempt


def _traced(tx: Transaction, attempt: Attempt, records: Sequence[SpoolRecord], at: float) -> Attempt:
    """Publish the notes about recorded traces, and delete the request for a trace that has been recorded.

    Return the attempt.
    """
    for record in records:
        if isinstance(record, Traced):
            tx.note(record.at, attempt.id, "info", record.text)
            if attempt.trace is not None and attempt.trace.id == record.id:
                attempt = changed(attempt, {"trace": None})
                tx.publish(at, attempt)
    return attempt


def _progress(tx: Transaction, attempt: Attempt, trial: Trial, records: Sequence[SpoolRecord], at: float) -> Trial:
    """Store and publish reports, notes and checkpoints among the records; return the trial with its new progress."""
    trial = changed(trial, _forward(tx.db, trial, [record for record in records if isinstance(record, Report)]))
    _insert(tx, attempt.id, records)
    commits = [record for record in records if isinstance(record, Committed)]
    if commits and commits[-1].step >= checkpoint_step(trial.checkpoint):
        trial = changed(trial, {"checkpoint": commits[-1].id})
        tx.publish(at, trial)
    return trial


def _insert(tx: Transaction, key: AttemptId, records: Sequence[SpoolRecord]) -> None:
    owner = {"experiment": key.experiment, "trial": key.trial, "attempt": key.number}
    rows = []
    for record in records:
        if isinstance(record, Report):
            row = {**owner, "seq": tx.next_seq(), "at": record.at, "kind": record.kind, "step": record.step}
            rows.append(row | {"epoch": record.epoch, "metrics": to_text(record.metrics)})
        elif isinstance(record, Note):
            tx.note(record.at, key, record.level, record.text)
        elif isinstance(record, Started):
            _keep(tx.db, owner, "runtime", record.at, record.runtime)
        elif isinstance(record, Fact):
            _keep(tx.db, owner, record.name, record.at, record.value)
        elif isinstance(record, ArtifactSaved):
            _keep_artifact(tx, key, record)
    if rows and tx.db.exec_driver_sql(_FIRST_WORD_WINS[tx.db.dialect.name], rows).rowcount != len(rows):
        _complete(tx.db, key, rows)


def _complete(db: Connection, key: AttemptId, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add metrics to stored reports: those that only a second report of the same kind and step (in `rows`) has.

    For example, a program prints `Test accuracy: ...` after the validation of its last step was stored. The completed
    report gets the sequence number of the second report, so that clients receive it again. The reports of a search are
    not changed, since its searcher has decided by them.
    """
    which = select(experiments.c.config).where(experiments.c.number == key.experiment)
    config: Config = db.execute(which).scalar_one()
    if config.search is not None:
        return
    here = reports.c
    ours = (here.experiment == key.experiment, here.trial == key.trial)
    steps = list({row["step"] for row in rows})
    for first in range(0, len(steps), AT_ONCE):
        found = db.execute(select(reports).where(*ours, here.step.in_(steps[first : first + AT_ONCE]))).mappings()
        stored = {(each["kind"], each["step"]): dict(each) for each in found}
        for row in rows:
            known = stored.get((row["kind"], row["step"]))
            if known is None or known["seq"] == row["seq"]:
                continue
            metrics = from_json(row["metrics"]) | known["metrics"]
            if len(metrics) > len(known["metrics"]):
                complete = {**known, "seq": row["seq"], "metrics": metrics}
                db.execute(delete(reports).where(here.seq == known["seq"]))
                db.execute(insert(reports), complete)
                stored[row["kind"], row["step"]] = complete


def _keep(db: Connection, owner: dict[str, int], name: str, at: float, value: Mapping[str, Any]) -> None:
    """Store a provenance record (fact) called `name`, unless the attempt already has one of this name.

    `owner` has the columns that identify the attempt.
    """
    row = {**owner, "name": name, "at": at, "value": dict(value)}
    db.execute(_INSERT[db.dialect.name](facts).values(row).on_conflict_do_nothing())


def _keep_artifact(tx: Transaction, key: AttemptId, record: ArtifactSaved) -> None:
    """Store and publish an artifact.

    It replaces one of the same name, unless that was stored by a later attempt; then nothing is done.
    """
    here = artifacts.c
    ours = (here.experiment == key.experiment, here.trial == key.trial, here.name == record.name)
    known = tx.db.execute(select(here.attempt).where(*ours)).scalar_one_or_none()
    if known is not None and known > key.number:
        return
    fields = record.model_dump(exclude={"type", "number"})
    artifact = Artifact(trial=key.trial, attempt=key.number, **fields)
    row = {"experiment": key.experiment, "seq": tx.kept(key, artifact), **to_row(artifact)}
    tx.db.execute(delete(artifacts).where(*ours))
    tx.db.execute(insert(artifacts), row)


def keep_artifact(tx: Transaction, key: AttemptId, saved: ArtifactSaved) -> None:
    """Store an artifact that did not come with the attempt's other records, unless it is stored already."""
    here = artifacts.c
    same = (here.experiment == key.experiment, here.trial == key.trial, here.name == saved.name)
    this = (here.attempt == key.number, here.at == saved.at, here.digest == saved.digest)
    if tx.db.execute(select(here.attempt).where(*same, *this)).first() is None:
        _keep_artifact(tx, get_attempt(tx.db, key).id, saved)


def _forward(db: Connection, trial: Trial, fresh: list[Report]) -> dict[str, Any]:
    """Return the fields of a trial (step, metrics, best) that the new reports `fresh` change, with their new values.

    It must be called before these reports are stored, since it compares them with the stored ones.
    """
    changes: dict[str, Any] = {}
    if not fresh:
        return changes
    newest = max(fresh, key=lambda report: (report.step, report.epoch))
    if (newest.step, newest.epoch) > (trial.step, trial.epoch):  # a validation may complete its step's epoch
        changes |= {"step": newest.step, "epoch": newest.epoch}
    trainings = [report for report in fresh if report.kind == "training"]
    if trainings:
        step, metrics = _newest(trainings)
        if step > trial.step or not trial.training:
            changes["training"] = metrics
        elif step == trial.step:
            changes["training"] = metrics | trial.training
    validations = [report for report in fresh if report.kind == "validation"]
    if validations:
        step, metrics = _newest(validations)
        known: int | None = db.execute(
            select(func.max(reports.c.step)).where(
                reports.c.experiment == trial.experiment,
                reports.c.trial == trial.index,
                reports.c.kind == "validation",
            )
        ).scalar_one()
        if known is None or step > known:
            changes["metrics"] = metrics
        elif step == known:
            changes["metrics"] = metrics | trial.metrics
        changes["best"] = _best(db, trial, validations)
    return changes


def _newest(found: Sequence[Report]) -> tuple[int, dict[str, float]]:
    """Return the newest step of these reports, and the values reported for it; of each name the first."""
    step = max(report.step for report in found)
    metrics: dict[str, float] = {}
    for report in found:
        if report.step == step:
            metrics = report.metrics | metrics
    return step, metrics


def _best(db: Connection, trial: Trial, validations: list[Report]) -> Best | None:
    """Return the best value of a trial so far, given new validations.

    A validation of a step for which one is stored already is ignored.
    """
    which = select(experiments.c.config).where(experiments.c.number == trial.experiment)
    config: Config = db.execute(which).scalar_one()
    first = {report.step: report for report in reversed(validations)}
    promising = [step for step, report in first.items() if better(trial.best, report, config.metric) != trial.best]
    if not promising:
        return trial.best
    known: Iterable[int] = db.execute(
        select(reports.c.step).where(
            reports.c.experiment == trial.experiment,
            reports.c.trial == trial.index,
            reports.c.kind == "validation",
            reports.c.step.in_(promising),
        )
    ).scalars()
    new = (first[step] for step in set(promising).difference(known))
    return reduce(lambda best, report: better(best, report, config.metric), new, trial.best)
