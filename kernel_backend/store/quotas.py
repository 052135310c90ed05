"""Store quotas, drained nodes and the audit log; each change is stored with its audit entry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import islice
from typing import Any

from pydantic_core import from_json
from sqlalchemy import Connection, Text, cast, delete, func, insert, or_, select
from typing_extensions import override

from kernel_backend.model.cluster.accounts import AccountKind, AuditEntry
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.node_faults import NodeFault, NodeName
from kernel_backend.model.versions import read
from kernel_backend.store import tables
from kernel_backend.store.base import Change, Held, QuotaStore
from kernel_backend.store.tables import from_row, rows_of
from kernel_backend.store.transaction import Transaction, changed, get_experiment

PAGE = 1000  # audit entries that are read at once


class SqlQuotaStore(QuotaStore):
    """Part of the SQL store that stores quotas, drained nodes and audit entries."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Transaction]: ...

    @override
    def quotas(self) -> dict[tuple[AccountKind, str], dict[str, Any]]:
        here = tables.quotas.c
        with self._reading() as db:
            rows = db.execute(select(here.kind, here.name, here.changed).order_by(here.kind, here.name))
            return {(row.kind, row.name): row.changed for row in rows}

    @override
    def set_quota(self, kind: AccountKind, name: str, changed: Mapping[str, Any], entry: AuditEntry) -> AuditEntry:
        here = tables.quotas.c
        with self._writing() as tx:
            tx.db.execute(delete(tables.quotas).where(here.kind == kind, here.name == name))
            if changed:
                row = {"kind": kind, "name": name, "changed": dict(changed), "at": entry.at, "who": entry.who}
                tx.db.execute(insert(tables.quotas), row)
            return tx.write_down(entry)

    @override
    def drained(self) -> frozenset[str]:
        with self._reading() as db:
            return frozenset(db.execute(select(tables.drained.c.node)).scalars())

    @override
    def set_drained(self, node: str, drained: bool, entry: AuditEntry) -> bool:
        here = tables.drained.c
        with self._writing() as tx:
            before = tx.db.execute(select(here.node).where(here.node == node)).first() is not None
            if before == drained:
                return False
            if drained:
                tx.db.execute(insert(tables.drained), {"node": node, "at": entry.at, "who": entry.who})
            else:
                tx.db.execute(delete(tables.drained).where(here.node == node))
            tx.write_down(entry)
            return True

    @override
    def node_faults(self, since: float) -> list[NodeFault]:
        here = tables.node_faults.c
        query = rows_of(NodeFault, tables.node_faults).where(here.at >= since).order_by(here.at, here.attempt)
        with self._reading() as db:
            return [from_row(NodeFault, row) for row in db.execute(query)]

    @override
    def add_node_fault(self, fault: NodeFault, forget: float) -> bool:
        here = tables.node_faults.c
        same = here.attempt == fault.attempt, here.pool == fault.pool, here.node == fault.node, here.kind == fault.kind
        with self._writing() as tx:
            if tx.db.execute(select(here.at).where(*same)).first() is not None:
                return False
            tx.db.execute(delete(tables.node_faults).where(here.at < forget))
            tx.db.execute(insert(tables.node_faults), fault.model_dump())
            return True

    @override
    def forgive_node(self, name: NodeName, entry: AuditEntry) -> bool:
        here = tables.node_faults.c
        with self._writing() as tx:
            theirs = delete(tables.node_faults).where(here.pool == name.pool, here.node == name.node)
            if not tx.db.execute(theirs).rowcount:
                return False
            tx.write_down(entry)
            return True

    @override
    def pools(self) -> list[Pool]:
        here = tables.pools.c
        with self._reading() as db:
            rows = db.execute(select(here.name, here.settings).order_by(here.name)).all()
        return [Pool(name=row.name, settings=read(PoolSettings, row.settings)) for row in rows]

    @override
    def set_pool(self, name: str, settings: PoolSettings | None, entry: AuditEntry) -> bool:
        here, new = tables.pools.c, None if settings is None else settings.to_json()
        with self._writing() as tx:
            before = tx.db.execute(select(here.settings).where(here.name == name)).scalar()
            if before == new:
                return False
            tx.db.execute(delete(tables.pools).where(here.name == name))
            if new is not None:
                tx.db.execute(insert(tables.pools), {"name": name, "settings": new, "at": entry.at, "who": entry.who})
            tx.write_down(entry)
            return True

    @override
    def update_experiment(self, number: int, at: float, change: Change) -> Experiment:
        with self._writing() as tx:
            before = get_experiment(tx.db, number)
            changes, entry = change(before)
            experiment = changed(before, {**changes, "state": before.state})
            tx.save(experiment)
            tx.publish(at, experiment)
            if entry is not None:
                tx.write_down(entry)
            return experiment

    @override
    def write_down(self, entry: AuditEntry) -> AuditEntry:
        with self._writing() as tx:
            return tx.write_down(entry)

    @override
    def audit(self, before: int | None = None, limit: int = 100, search: str = "") -> list[AuditEntry]:
        here, words = tables.audit.c, search.casefold().split()
        query = rows_of(AuditEntry, tables.audit).order_by(here.seq.desc())
        if before is not None:
            query = query.where(here.seq < before)
        if not words:
            query = query.limit(limit)
        with self._reading() as db:
            # Databases fold only some letters (SQLite those of ASCII), so the words are matched
            # in Python.
            found = (from_row(AuditEntry, row) for row in db.execute(query.execution_options(yield_per=PAGE)))
            return list(islice((each for each in found if _has(each, words)), limit))

    @override
    def held(self, kind: AccountKind, name: str, since: float, until: float) -> list[Held]:
        here, whose = tables.attempts.c, tables.experiments.c
        begun = func.coalesce(here.granted_at, here.ended_at, here.created_at)
        query = select(begun, here.ended_at, cast(here.placement, Text)).join(
            tables.experiments, whose.number == here.experiment
        )
        query = query.where(
            (whose.owner if kind == "user" else whose.group) == name,
            here.created_at < until,
            or_(here.ended_at.is_(None), here.ended_at > since),
        )
        with self._reading() as db:
            return [(begun, ended, slots_of(placement)) for begun, ended, placement in db.execute(query)]


@lru_cache(4096)  # the attempts have few distinct placements
def slots_of(placement: str) -> int:
    """Return how many slots a stored placement of a gang (JSON text) has; 0 if the text is damaged."""
    try:
        return sum(len(share["slots"]) for share in from_json(placement))
    except (ValueError, TypeError, KeyError):
        return 0


def _has(entry: AuditEntry, words: Sequence[str]) -> bool:
    """Return whether an audit entry contains all of these lower-case words."""
    text = f"{entry.who} {entry.act} {entry.on} {entry.detail}".casefold() if words else ""
    return all(word in text for word in words)
