"""Read experiment overviews with a few queries for all of them, and a few more for each experiment with many trials.

For the latter the database selects which trials to display, because reading thousands of them would be slow.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, case, func, or_, select, type_coerce

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.states import LIVE, Hold, TrialState
from kernel_backend.model.trial import Attempt, Trial
from kernel_backend.model.views.overview import ATTEMPTS, Overview
from kernel_backend.model.views.shown_trials import BEST, MOST, TROUBLED
from kernel_backend.store.listing import count_trials
from kernel_backend.store.stream import last_seq
from kernel_backend.store.tables import (
    IS_NOTE,
    IS_UNUSUAL,
    AnyRecord,
    artifacts,
    attempts,
    events,
    experiments,
    from_row,
    reports,
    rows_of,
    trials,
)

KEPT = 500  # overviews that are cached
NOTES = 50  # newest notes per experiment, each text once
NOTES_READ = 200  # newest notes per experiment that are read to find these

_Version = tuple[int | None, int | None]  # numbers of an experiment's newest message and report


class OverviewReader:
    """Reader of overviews with a cache: an overview is read again only if its experiment has new messages."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[_Version, Overview]] = {}  # by number; most recently used last
        self._lock = threading.Lock()

    def read(self, db: Connection, query: Select[Any]) -> list[Overview]:
        """Return the overviews of the experiments that a query selects, in the query's order.

        Each contains its trials, their newest attempts, and notes as warnings.
        """
        seq = last_seq(db)  # read first: an overview may then include later changes, but misses none
        versions = {row[0]: (row[1], row[2]) for row in db.execute(_versions(query))}
        found = self._known(versions)
        missing = [number for number in versions if number not in found]
        read = {each.experiment.number: each for each in _read_overviews(db, missing)} if missing else {}
        found |= read
        self._keep({number: (versions[number], each) for number, each in read.items()})
        return [found[number].model_copy(update={"seq": seq}) for number in versions]

    def _known(self, versions: Mapping[int, _Version]) -> dict[int, Overview]:
        """Return the cached overviews that are still up to date, by number.

        `versions` has the current version of each experiment: the sequence numbers of its newest message and report.
        """
        found = {}
        with self._lock:
            for number, version in versions.items():
                cached = self._cache.pop(number, None)
                if cached is not None and cached[0] == version:
                    self._cache[number] = cached
                    found[number] = cached[1]
        return found

    def _keep(self, read: Mapping[int, tuple[_Version, Overview]]) -> None:
        with self._lock:
            self._cache |= read
            while len(self._cache) > KEPT:
                del self._cache[next(iter(self._cache))]


def _versions(query: Select[Any]) -> Select[Any]:
    """Return a query for the versions of the experiments that `query` selects, which show if a cached one is outdated.

    Each row has the experiment's number and the sequence numbers of its newest message and its newest report.
    """
    newest = (
        select(func.max(table.c.seq)).where(table.c.experiment == experiments.c.number).scalar_subquery()
        for table in (events, reports)
    )
    return query.with_only_columns(experiments.c.number, *newest)


def _read_overviews(db: Connection, numbers: Sequence[int]) -> list[Overview]:
    query = rows_of(Experiment, experiments).where(experiments.c.number.in_(numbers))
    found = [from_row(Experiment, row) for row in db.execute(query)]
    counts = count_trials(db, numbers)
    many = {each.number: each for each in found if sum(counts[each.number].values()) > MOST}
    # One query each: the index does not help with their disjunction.
    shown: list[ColumnElement[bool]] = [trials.c.experiment.in_([number for number in numbers if number not in many])]
    shown += [_of(number, _looked_at(db, each)) for number, each in many.items()]
    their_trials = _by_experiment(db, Trial, map(_trials, shown))
    their_attempts = _by_experiment(db, Attempt, map(_attempts, shown))
    notes: defaultdict[int, dict[str, bool]] = defaultdict(dict)  # by text: whether it only informs
    for note in db.execute(_notes(numbers)):
        notes[note.experiment].setdefault(str(note.data["text"]), note.data.get("level") == "info")
    kept: dict[int, int] = {row.experiment: row.seq for row in db.execute(_newest_artifacts(numbers))}
    return [
        Overview(
            experiment=experiment,
            trials=tuple(their_trials[experiment.number]),
            trial_counts=counts[experiment.number] if experiment.number in many else {},
            attempts=tuple(their_attempts[experiment.number]),
            warnings=tuple(notes[experiment.number])[-NOTES:],
            informational=tuple(text for text, informs in notes[experiment.number].items() if informs)[-NOTES:],
            artifacts_seq=kept.get(experiment.number, 0),
        )
        for experiment in found
    ]


def _by_experiment(db: Connection, kind: type[AnyRecord], queries: Iterable[Select[Any]]) -> dict[int, list[AnyRecord]]:
    found = defaultdict(list)
    for query in queries:
        for row in db.execute(query):
            found[row.experiment].append(from_row(kind, row))
    return found


def _of(number: int, indices: set[int]) -> ColumnElement[bool]:
    return and_(trials.c.experiment == number, trials.c.index.in_(indices))


def _looked_at(db: Connection, experiment: Experiment) -> set[int]:
    """Return the indices of those of an experiment's many trials that an overview displays.

    The database selects them by the same rules as `shown_trials`.
    """
    here = trials.c
    troubled = or_(here.failure.is_not(None), type_coerce(here.holds, Text).contains(Hold.ENGINE.value))
    ended_last = case((here.state == TrialState.FAILED, 0), else_=1)
    indices = select(here.index).where(here.experiment == experiment.number)
    best_first = here.best_value.desc() if experiment.config.metric.mode == "max" else here.best_value
    queries = (
        indices.where(here.state.in_(LIVE)),
        indices.where(here.best_value.is_not(None)).order_by(best_first, here.index).limit(BEST),
        indices.where(IS_UNUSUAL, troubled).order_by(ended_last.desc(), here.index.desc()).limit(TROUBLED),
    )
    found: set[int] = set()
    for query in queries:
        found.update(db.execute(query).scalars())
    return found


def _trials(shown: ColumnElement[bool]) -> Select[Any]:
    return rows_of(Trial, trials).where(shown).order_by(trials.c.experiment, trials.c.index)


def _attempts(shown: ColumnElement[bool]) -> Select[Any]:
    """Return the query for the newest `ATTEMPTS` attempts of each trial that the SQL condition `shown` selects."""
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
    """Return the query for the newest `NOTES_READ` notes (messages for the user) of each experiment, oldest first."""
    here = events.c
    place = func.row_number().over(partition_by=here.experiment, order_by=here.seq.desc()).label("place")
    newest = select(here.seq, place).where(here.experiment.in_(numbers), IS_NOTE).subquery()
    return (
        select(here.experiment, here.data)
        .join(newest, newest.c.seq == here.seq)
        .where(newest.c.place <= NOTES_READ)
        .order_by(here.experiment, here.seq)
    )
