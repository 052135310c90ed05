"""Store registered models in a SQL database."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager

from sqlalchemy import Connection, insert, select
from typing_extensions import override

from kernel_backend.model.register.history import model_of
from kernel_backend.model.register.records import Model, ModelChange, ModelVersion
from kernel_backend.store.register.base import Decide, RegisterStore
from kernel_backend.store.tables import all_from, from_row, model_log, model_versions, rows_of, to_row
from kernel_backend.store.transaction import Transaction


class SqlRegisterStore(RegisterStore):
    """Part of the SQL store that holds registered models."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Transaction]: ...

    @override
    def models(self, owner: str | None = None, name: str | None = None) -> list[Model]:
        with self._reading() as db:
            return _models(db, owner, name)

    @override
    def change_model(self, owner: str, name: str, decide: Decide) -> Model | None:
        with self._writing() as tx:
            before = next(iter(_models(tx.db, owner, name)), None)
            step = decide(before)
            if step is None:
                return before
            log = before.log if before else ()
            last = log[-1] if log else None
            change = step.change.model_copy(
                update={"number": len(log) + 1, "at": max(step.change.at, last.at) if last else step.change.at}
            )
            if step.version is not None:
                number = 1 + sum(each.act == "register" for each in log)
                version = step.version.model_copy(update={"version": number, "at": change.at})
                change = change.model_copy(update={"version": number})
                tx.db.execute(insert(model_versions), to_row(version))
            tx.db.execute(insert(model_log), to_row(change) | {"owner": owner, "model": name})
            if step.entry is not None:
                tx.write_down(step.entry)
            return _models(tx.db, owner, name)[0]

    @override
    def registered(self, experiment: int) -> list[ModelVersion]:
        here, log = model_versions.c, model_log.c
        removed = select(log.number).where(
            log.owner == here.owner, log.model == here.name, log.act == "remove", log.version == here.version
        )
        query = rows_of(ModelVersion, model_versions).where(here.experiment == experiment, ~removed.exists())
        with self._reading() as db:
            rows = db.execute(query.order_by(here.owner, here.name, here.version))
            return [from_row(ModelVersion, row) for row in rows]


def _models(db: Connection, owner: str | None, name: str | None) -> list[Model]:
    here, log = model_versions.c, model_log.c
    versions = rows_of(ModelVersion, model_versions).order_by(here.owner, here.name, here.version)
    changes = select(model_log).order_by(log.owner, log.model, log.number)
    if owner is not None:
        versions, changes = versions.where(here.owner == owner), changes.where(log.owner == owner)
    if name is not None:
        versions, changes = versions.where(here.name == name), changes.where(log.model == name)
    known: dict[tuple[str, str], list[ModelVersion]] = {}
    for version in all_from(ModelVersion, db.execute(versions)):
        known.setdefault((version.owner, version.name), []).append(version)
    entries: dict[tuple[str, str], list[ModelChange]] = {key: [] for key in known}
    for row in db.execute(changes):  # it may have more than the versions above: another transaction writes
        fields = row._asdict()
        key = fields.pop("owner"), fields.pop("model")
        if key in known:
            entries[key].append(ModelChange.model_validate(fields))
    return [model_of(versions, entries[key]) for key, versions in known.items()]
