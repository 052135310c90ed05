"""Store experiments: add, find, change and purge them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Select, Text, delete, func, insert, select, type_coerce
from typing_extensions import override

from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.events import Event
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.search.effects import Added
from kernel_backend.model.states import ExperimentState
from kernel_backend.model.trial import Trial
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.webhooks.records import event_of
from kernel_backend.store import tables
from kernel_backend.store.base import NewExperiment, Store
from kernel_backend.store.listing import find_before, find_experiments
from kernel_backend.store.measured.slot_use import forget_curves
from kernel_backend.store.outbox.sql import enqueue
from kernel_backend.store.overviews import OverviewReader
from kernel_backend.store.repeated import read_repeated
from kernel_backend.store.scheduled import OPEN_EXPERIMENT
from kernel_backend.store.tables import AnyRecord, all_from, rows_of, to_row
from kernel_backend.store.transaction import (
    Transaction,
    advanced,
    changed,
    get_experiment,
    get_trial,
)

# Tables with the contents of an experiment, which are deleted with its files.
_OF_EXPERIMENT = (
    tables.reports,
    tables.facts,
    tables.rank_times,
    tables.artifacts,
    tables.search_log,
    tables.search_histories,
    tables.events,
)


class SqlExperimentStore(Store):
    """Part of the SQL store that stores experiments."""

    _overviews: OverviewReader

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self, *, lazily: bool = False) -> AbstractContextManager[Transaction]: ...

    def _all(self, kind: type[AnyRecord], query: Select[Any]) -> list[AnyRecord]:
        with self._reading() as db:
            return all_from(kind, db.execute(query))

    @override
    def add_experiment(self, draft: NewExperiment, at: float, beyond: int = 0) -> tuple[Experiment, Trial | None]:
        with self._writing() as tx:
            if draft.request is not None and (made := _made_by(tx.db, draft.owner, draft.request)) is not None:
                before = get_experiment(tx.db, made)
                return before, None if before.config.search is not None else get_trial(tx.db, made, 1)
            newest: int = tx.db.execute(select(func.max(tables.experiments.c.number))).scalar_one() or 0
            number = 1 + max(newest, beyond)
            fields = {name: getattr(draft, name) for name in NewExperiment.model_fields if name != "request"}
            fields["name"] = draft.name.strip()
            experiment = Experiment(number=number, state=ExperimentState.ACTIVE, created_at=at, **fields)
            tx.db.execute(insert(tables.experiments), to_row(experiment) | {"request": draft.request})
            tx.publish(at, experiment)
            enqueue(tx, experiment, "submitted", at)
            if experiment.config.search is not None:
                return experiment, None
            return experiment, tx.add(at, number, Added(1, draft.params, begins_from=draft.begins_from))

    @override
    def made_by(self, owner: str, request: str) -> int | None:
        with self._reading() as db:
            return _made_by(db, owner, request)

    @override
    def experiment(self, number: int) -> Experiment:
        with self._reading() as db:
            return get_experiment(db, number)

    @override
    def experiments(
        self, owner: str | None = None, state: str | None = None, search: str | None = None, limit: int = 50
    ) -> list[Experiment]:
        return self._all(Experiment, find_experiments(owner, state, search).limit(limit))

    @override
    def overview(self, number: int) -> Overview:
        here = tables.experiments
        with self._reading() as db:
            get_experiment(db, number)  # raises NotFound
            return self._overviews.read(db, rows_of(Experiment, here).where(here.c.number == number))[0]

    @override
    def overviews(
        self,
        owner: str | None = None,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        group: str | None = None,
        seen_by: Person | None = None,
        tags: Sequence[str] = (),
        notebook: str | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> list[Overview]:
        query = find_experiments(owner, state, search, group, seen_by, tags, notebook, before, after)
        with self._reading() as db:
            return self._overviews.read(db, query.limit(limit))

    @override
    def experiments_before(self, experiment: Experiment | NewExperiment, limit: int = 1) -> list[Experiment]:
        return self._all(Experiment, find_before(experiment).limit(limit))

    @override
    def unfinished_experiments(self) -> list[Experiment]:
        here = tables.experiments.c
        return self._all(
            Experiment,
            rows_of(Experiment, tables.experiments).where(here.state.in_(OPEN_EXPERIMENT)).order_by(here.number),
        )

    @override
    def ended_since(self, owner: str, since: float, limit: int) -> list[Experiment]:
        ended = find_experiments(owner, None, None).where(tables.experiments.c.ended_at > since)
        return self._all(Experiment, ended.order_by(None).order_by(tables.experiments.c.ended_at.desc()).limit(limit))

    @override
    def deleted_experiments(self) -> list[Experiment]:
        here = tables.experiments.c
        query = rows_of(Experiment, tables.experiments).where(here.deleted_at.is_not(None), here.purged_at.is_(None))
        return self._all(Experiment, query.order_by(here.number))

    @override
    def warm_start_sources(self, number: int) -> list[tuple[str, int]]:
        whose, here = tables.experiments.c, tables.trials.c
        others = (whose.deleted_at.is_(None), whose.number != number)
        source = f"{number}."
        found = select(whose.begins_from, whose.number).where(whose.begins_from.startswith(source), *others)
        trials = select(here.begins_from, whose.number).join(tables.experiments, whose.number == here.experiment)
        query = found.union(trials.where(here.begins_from.startswith(source), *others))
        with self._reading() as db:
            return sorted((row[0], row[1]) for row in db.execute(query))

    @override
    def warm_started(self) -> list[Experiment]:
        here = tables.experiments.c
        query = rows_of(Experiment, tables.experiments).where(here.deleted_at.is_(None))
        maybe = self._all(Experiment, query.where(type_coerce(here.config, Text).contains('"warm":["')))
        return [each for each in maybe if each.config.search is not None and each.config.search.warm]

    @override
    def snapshot_users(self, snapshot: str, but: int) -> list[int]:
        here = tables.experiments.c
        query = select(here.number).where(here.snapshot == snapshot, here.purged_at.is_(None), here.number != but)
        with self._reading() as db:
            return sorted(db.execute(query).scalars())

    @override
    def purge(self, number: int, at: float) -> None:
        with self._writing() as tx:
            for table in _OF_EXPERIMENT:
                tx.db.execute(delete(table).where(table.c.experiment == number))
            forget_curves(tx.db, number)
            before = get_experiment(tx.db, number)
            blank = {"name": "", "note": "", "tags": (), "params": {}, "purged_at": at, "state": before.state}
            tx.save(changed(before, blank))
            tx.publish(at, changed(before, blank))

    @override
    def unfinished_names(self) -> dict[int, str]:
        here = tables.experiments.c
        with self._reading() as db:
            rows = db.execute(select(here.number, here.name).where(here.state.in_(OPEN_EXPERIMENT)))
            return {row.number: row.name for row in rows}

    @override
    def repeated_by(self, draft: NewExperiment) -> list[Experiment]:
        with self._reading() as db:
            return read_repeated(db, draft)

    @override
    def advance_experiment(
        self, number: int, event: Event, at: float, entry: AuditEntry | None = None, **changes: Any
    ) -> Experiment:
        with self._writing() as tx:
            before = get_experiment(tx.db, number)
            experiment = advanced(before, event, at, changes)
            tx.save(experiment)
            tx.publish(at, experiment)
            enqueue(tx, experiment, event_of(before.state, experiment), at)
            if entry is not None:
                tx.write_down(entry)
            return experiment


def _made_by(db: Connection, owner: str, request: str) -> int | None:
    here = tables.experiments.c
    return db.execute(select(here.number).where(here.owner == owner, here.request == request)).scalar_one_or_none()
