"""Read reports, provenance records, artifacts and numbers of trials, and remove a part of old reports."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Select, delete, select
from typing_extensions import override

from kernel_backend.errors import NotFound
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.cluster.accounting import AttemptSpending
from kernel_backend.model.cluster.monitored import StoreCounts
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.utilisation import SlotUse, StoredUse
from kernel_backend.model.reports import Kind, Measurements, StoredReport
from kernel_backend.model.times import AttemptTimes, RankTimes, Split
from kernel_backend.model.views.curves import ReportedValues
from kernel_backend.model.views.thinning import Thinned, spare_reports
from kernel_backend.store import tables
from kernel_backend.store.base import Store
from kernel_backend.store.measured.slot_use import keep_use, latest_use, read_use, recent_use, total_use
from kernel_backend.store.measured.times import keep_times, latest_times, read_times, total_times
from kernel_backend.store.metric_columns import read_metric_columns
from kernel_backend.store.monitored import read_counts
from kernel_backend.store.spending import read_spending
from kernel_backend.store.tables import AnyRecord, rows_of
from kernel_backend.store.transaction import AT_ONCE, Transaction


class SqlReportedStore(Store):
    """Part of the SQL store that reads reports, provenance records and artifacts."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self, *, lazily: bool = False) -> AbstractContextManager[Transaction]: ...

    @abstractmethod
    def _all(self, kind: type[AnyRecord], query: Select[Any]) -> list[AnyRecord]: ...

    @override
    def reports(
        self, number: int, trial: int, kind: Kind | None = None, after: int = 0, limit: int | None = None
    ) -> list[StoredReport]:
        here = tables.reports.c
        query = rows_of(StoredReport, tables.reports).where(
            here.experiment == number, here.trial == trial, here.seq > after
        )
        if kind is not None:
            query = query.where(here.kind == kind)
        return self._all(StoredReport, query.order_by(here.seq).limit(limit))

    @override
    def validations(self, number: int, after: int = 0) -> list[StoredReport]:
        here = tables.reports.c
        query = rows_of(StoredReport, tables.reports).where(
            here.experiment == number, here.seq > after, here.kind == "validation"
        )
        return self._all(StoredReport, query.order_by(here.seq))

    @override
    def facts(self, number: int, trial: int) -> list[StoredFact]:
        here = tables.facts.c
        query = rows_of(StoredFact, tables.facts).where(here.experiment == number, here.trial == trial)
        return self._all(StoredFact, query.order_by(here.attempt, here.name))

    @override
    def artifacts(self, number: int) -> list[Artifact]:
        here = tables.artifacts.c
        query = rows_of(Artifact, tables.artifacts).where(here.experiment == number)
        return self._all(Artifact, query.order_by(here.trial, here.name))

    @override
    def artifact(self, number: int, trial: int, name: str) -> Artifact:
        here = tables.artifacts.c
        query = rows_of(Artifact, tables.artifacts).where(here.experiment == number, here.trial == trial)
        found = self._all(Artifact, query.where(here.name == name))
        if not found:
            raise NotFound(f"trial {number}.{trial} has no artifact {name!r}: daylight artifacts {number} lists them")
        return found[0]

    @override
    def keep_measured(self, key: AttemptId, measured: Measurements, at: float) -> None:
        if not measured.times and not measured.use:
            return
        with self._writing(lazily=True) as tx:
            keep_times(tx.db, key, measured.times, at)
            keep_use(tx.db, key, measured.use)

    @override
    def times(self, number: int, trial: int) -> list[AttemptTimes]:
        with self._reading() as db:
            return read_times(db, number, trial)

    @override
    def total_times(self, number: int, since: float) -> tuple[Split, list[RankTimes]]:
        with self._reading() as db:
            return total_times(db, number), latest_times(db, number, since)

    @override
    def use(self, number: int, trial: int) -> list[StoredUse]:
        with self._reading() as db:
            return read_use(db, number, trial)

    @override
    def total_use(self, number: int) -> SlotUse:
        with self._reading() as db:
            return total_use(db, number)

    @override
    def recent_use(self, since: float) -> list[StoredUse]:
        with self._reading() as db:
            return recent_use(db, since)

    @override
    def spending(self, owner: str | None, since: float, until: float) -> list[AttemptSpending]:
        with self._reading() as db:
            return read_spending(db, owner, since, until)

    @override
    def latest_use(self, since: float, number: int | None = None) -> list[StoredUse]:
        with self._reading() as db:
            return latest_use(db, since, number)

    @override
    def reported_values(self, number: int, trial: int, after: int = 0) -> ReportedValues:
        with self._reading() as db:
            return read_metric_columns(db, number, trial, after)

    @override
    def counts(self, most: int) -> StoreCounts:
        with self._reading() as db:
            return read_counts(db, most)

    @override
    def thin_reports(self, number: int, most: int, *, dry_run: bool = False) -> Thinned:
        here = tables.reports.c
        query = (
            select(here.trial, here.seq, here.metrics)
            .where(here.experiment == number, here.kind == "training")
            .order_by(here.trial, here.step)
        )
        by_trial: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
        with self._reading() as db:
            for row in db.execute(query):
                by_trial.setdefault(row.trial, []).append((row.seq, tuple(row.metrics)))
        spare = [seq for reports in by_trial.values() for seq in spare_reports(reports, most)]
        if not dry_run:
            with self._writing() as tx:
                for first in range(0, len(spare), AT_ONCE):
                    tx.db.execute(delete(tables.reports).where(here.seq.in_(spare[first : first + AT_ONCE])))
        return Thinned(len(spare), sum(map(len, by_trial.values())))
