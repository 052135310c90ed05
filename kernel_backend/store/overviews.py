"""Experiments as a person looks at them: seven queries, however many there are, one more for each of many trials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, func, or_, select, type_coerce

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.looked_at import MOST, Glance, looked_at
from kernel_backend.model.overview import ATTEMPTS, Overview
from kernel_backend.model.states import Hold, TrialState
from kernel_backend.model.trial import Attempt, Best, Trial
from kernel_backend.store.listing import count_trials
from kernel_backend.store.stream import last_seq
from kernel_backend.store.tables import AnyRecord, artifacts, attempts, events, from_row, rows_of, trials

NOTES = 50  # of an experiment: the newest, each text once


def read_overviews(db: Connection, query: Select[Any]) -> list[Overview]:
    """The experiments of this query, in its order: with trials, the newest attempts of each, and notes as warnings."""
    seq = last_seq(db)  # first: a picture may be newer than it says, never older
    found = [from_row(Experiment, row) for row in db.execute(query)]
    numbers = [experiment.number for experiment in found]
    counts = count_trials(db, numbers)
    many = {each.number: each for each in found if sum(counts[each.number].values()) > MOST}
    shown = _shown(db, numbers, many)
    their_trials = _by_experiment(db, Trial, _trials(shown))
    their_attempts = _by_experiment(db, Attempt, _attempts(shown))
    notes = defaultdict(list)
    for note in db.execute(_notes(numbers)):
        notes[note.experiment].append(str(note.data["text"]))
    kept: dict[int, int] = {row.experiment: row.seq for row in db.execute(_newest_artifacts(numbers))}
    return [
        Overview(
            experiment=experiment,
            trials=tuple(their_trials[experiment.number]),
            trial_counts=counts[experiment.number] if experiment.number in many else {},
            attempts=tuple(their_attempts[experiment.number]),
            warnings=tuple(dict.fromkeys(notes[experiment.number]))[-NOTES:],
            artifacts_seq=kept.get(experiment.number, 0),
            seq=seq,
        )
        for experiment in found
    ]


def _by_experiment(db: Connection, kind: type[AnyRecord], query: Select[Any]) -> dict[int, list[AnyRecord]]:
    found = defaultdict(list)
    for row in db.execute(query):
        found[row.experiment].append(from_row(kind, row))
    return found


def _shown(db: Connection, numbers: Sequence[int], many: Mapping[int, Experiment]) -> ColumnElement[bool]:
    """Which trials are sent: those that are looked at of experiments with `many`, and all of the others."""
    here = trials.c
    some = [and_(here.experiment == number, here.index.in_(_looked_at(db, each))) for number, each in many.items()]
    return or_(here.experiment.in_([number for number in numbers if number not in many]), *some)


def _looked_at(db: Connection, experiment: Experiment) -> set[int]:
    here, metric = trials.c, experiment.config.metric
    engine = type_coerce(here.holds, Text).contains(Hold.ENGINE.value)
    troubled = or_(here.failure.is_not(None), engine)
    glances = select(here.index, here.state, here.best, troubled).where(here.experiment == experiment.number)
    return looked_at(
        [
            Glance(index, TrialState(state), best and Best.model_construct(**best), troubled)
            for index, state, best, troubled in db.execute(glances)
        ],
        metric,
    )


def _trials(shown: ColumnElement[bool]) -> Select[Any]:
    return rows_of(Trial, trials).where(shown).order_by(trials.c.experiment, trials.c.index)


def _attempts(shown: ColumnElement[bool]) -> Select[Any]:
    """The newest of each trial: they are numbered without gaps, up to the one that the trial names."""
    here = attempts.c
    own = and_(here.experiment == trials.c.experiment, here.trial == trials.c.index)
    return (
        rows_of(Attempt, attempts)
        .join(trials, own)
        .where(shown, here.number > trials.c.attempt - ATTEMPTS)
        .order_by(here.experiment, here.trial, here.number)
    )


def _newest_artifacts(numbers: Sequence[int]) -> Select[Any]:
    here = artifacts.c
    newest = select(here.experiment, func.max(here.seq).label("seq"))
    return newest.where(here.experiment.in_(numbers)).group_by(here.experiment)


def _notes(numbers: Sequence[int]) -> Select[Any]:
    here = events.c
    return (
        select(here.experiment, here.data)
        .where(here.experiment.in_(numbers), here.type == "note")
        .order_by(here.experiment, here.seq)
    )
