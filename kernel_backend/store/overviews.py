"""Experiments as a person looks at them: five queries, however many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, select

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.overview import ATTEMPTS, Overview
from kernel_backend.model.trial import Attempt, Trial
from kernel_backend.store.stream import last_seq
from kernel_backend.store.tables import AnyRecord, attempts, events, from_row, rows_of, trials


def read_overviews(db: Connection, query: Select[Any]) -> list[Overview]:
    """The experiments of this query, in its order: with trials, the newest attempts of each, and notes as warnings."""
    seq = last_seq(db)  # first: a picture may be newer than it says, never older
    found = [from_row(Experiment, row) for row in db.execute(query)]
    numbers = [experiment.number for experiment in found]
    their_trials = _by_experiment(db, Trial, _trials(numbers))
    their_attempts = _by_experiment(db, Attempt, _attempts(numbers))
    notes = defaultdict(list)
    for note in db.execute(_notes(numbers)):
        notes[note.experiment].append(str(note.data["text"]))
    return [
        Overview(
            experiment=experiment,
            trials=tuple(their_trials[experiment.number]),
            attempts=tuple(their_attempts[experiment.number]),
            warnings=tuple(notes[experiment.number]),
            seq=seq,
        )
        for experiment in found
    ]


def _by_experiment(db: Connection, kind: type[AnyRecord], query: Select[Any]) -> dict[int, list[AnyRecord]]:
    found = defaultdict(list)
    for row in db.execute(query):
        found[row.experiment].append(from_row(kind, row))
    return found


def _trials(numbers: Sequence[int]) -> Select[Any]:
    here = trials.c
    return rows_of(Trial, trials).where(here.experiment.in_(numbers)).order_by(here.experiment, here.index)


def _attempts(numbers: Sequence[int]) -> Select[Any]:
    """The newest of each trial: they are numbered without gaps, up to the one that the trial names."""
    here = attempts.c
    own = and_(here.experiment == trials.c.experiment, here.trial == trials.c.index)
    return (
        rows_of(Attempt, attempts)
        .join(trials, own)
        .where(here.experiment.in_(numbers), here.number > trials.c.attempt - ATTEMPTS)
        .order_by(here.experiment, here.trial, here.number)
    )


def _notes(numbers: Sequence[int]) -> Select[Any]:
    here = events.c
    return (
        select(here.experiment, here.data)
        .where(here.experiment.in_(numbers), here.type == "note")
        .order_by(here.experiment, here.seq)
    )
