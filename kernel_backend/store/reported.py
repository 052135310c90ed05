"""Read reports, provenance records and artifacts of trials."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Select
from typing_extensions import override

from kernel_backend.errors import NotFound
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.model.views.curves import ReportedValues
from kernel_backend.store import tables
from kernel_backend.store.base import Store
from kernel_backend.store.metric_columns import read_metric_columns
from kernel_backend.store.tables import AnyRecord, rows_of


class SqlReportedStore(Store):
    """Part of the SQL store that reads reports, provenance records and artifacts."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

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
    def reported_values(self, number: int, trial: int, after: int = 0) -> ReportedValues:
        with self._reading() as db:
            return read_metric_columns(db, number, trial, after)
