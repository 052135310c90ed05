"""Store webhooks and their outbox in a SQL database."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select, true, update
from typing_extensions import override

from kernel_backend.errors import Conflict, NotFound
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.webhooks.records import MOST_WAITING, EventName, Notice, StoredWebhook
from kernel_backend.store.outbox.base import OutboxStore
from kernel_backend.store.tables import from_row, outbox, rows_of, to_row, webhooks
from kernel_backend.store.transaction import Transaction


def enqueue(tx: Transaction, experiment: Experiment, event: EventName | None, at: float) -> None:
    """Store a notice of an event for each webhook that subscribes to it.

    If more than `MOST_WAITING` notices would wait for a webhook, its oldest one is dropped.
    """
    here = webhooks.c
    concerned = (here.owner == experiment.owner) | (here.everyone == true())
    for hook in tx.db.execute(select(here.id, here.events).where(here.off == "", here.link == "", concerned)):
        if event in hook.events:
            _bound(tx.db, hook.id)
            newest: int = tx.db.execute(select(func.max(outbox.c.seq))).scalar_one() or 0
            row = {"seq": newest + 1, "id": uuid4().hex, "webhook": hook.id, "event": event, "at": at}
            tx.db.execute(insert(outbox), row | {"experiment": experiment.number})


def _bound(db: Connection, webhook: int) -> None:
    """Delete a webhook's oldest waiting notice if `MOST_WAITING` notices wait, so that another can be stored."""
    count, oldest = db.execute(select(func.count(), func.min(outbox.c.seq)).where(outbox.c.webhook == webhook)).one()
    if count >= MOST_WAITING:
        db.execute(delete(outbox).where(outbox.c.seq == oldest))
        db.execute(update(webhooks).where(webhooks.c.id == webhook).values(dropped=webhooks.c.dropped + 1))


class SqlOutboxStore(OutboxStore):
    """Part of the SQL store that holds webhooks and their outbox."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Transaction]: ...

    @override
    def webhooks(self) -> list[StoredWebhook]:
        with self._reading() as db:
            rows = db.execute(rows_of(StoredWebhook, webhooks).order_by(webhooks.c.id))
            return [from_row(StoredWebhook, row) for row in rows]

    @override
    def webhook(self, id: int) -> StoredWebhook:
        with self._reading() as db:
            return _get(db, id)

    @override
    def add_webhook(self, new: StoredWebhook, most: int, entry: AuditEntry | None) -> StoredWebhook:
        with self._writing() as tx:
            if (before := _added_by(tx.db, new.owner, new.request)) is not None:
                return before
            owned = select(func.count()).where(webhooks.c.owner == new.owner)
            if tx.db.execute(owned).scalar_one() >= most:
                raise Conflict(f"{new.owner} has {most} webhooks, which is the limit: remove one first")
            newest: int = tx.db.execute(select(func.max(webhooks.c.id))).scalar_one() or 0
            hook = new.model_copy(update={"id": newest + 1})
            tx.db.execute(insert(webhooks), to_row(hook))
            if entry is not None:
                tx.write_down(entry)
            return hook

    @override
    def seen_admin(self, owner: str, at: float) -> None:
        here = webhooks.c
        with self._writing() as tx:
            tx.db.execute(update(webhooks).where(here.owner == owner, here.everyone == true()).values(admin_at=at))

    @override
    def remove_webhook(self, id: int, entry: AuditEntry | None) -> None:
        with self._writing() as tx:
            _get(tx.db, id)
            tx.db.execute(delete(outbox).where(outbox.c.webhook == id))
            tx.db.execute(delete(webhooks).where(webhooks.c.id == id))
            if entry is not None:
                tx.write_down(entry)

    @override
    def change_webhook(self, hook: StoredWebhook, **changes: Any) -> None:
        here = webhooks.c
        with self._writing() as tx:
            if changes.get("off"):
                lost = tx.db.execute(delete(outbox).where(outbox.c.webhook == hook.id)).rowcount
                changes["dropped"] = here.dropped + lost
            # An id may be given again after a removal.
            tx.db.execute(update(webhooks).where(here.id == hook.id, here.at == hook.at).values(**changes))

    @override
    def waiting_notices(self) -> dict[int, int]:
        here = outbox.c
        with self._reading() as db:
            return {row[0]: row[1] for row in db.execute(select(here.webhook, func.count()).group_by(here.webhook))}

    @override
    def next_notice(self, webhook: int) -> Notice | None:
        query = rows_of(Notice, outbox).where(outbox.c.webhook == webhook).order_by(outbox.c.seq).limit(1)
        with self._reading() as db:
            row = db.execute(query).first()
            return None if row is None else from_row(Notice, row)

    @override
    def delivered(self, notice: Notice, at: float) -> None:
        works = {"problem": "", "failing_since": None, "delivered_at": at}
        with self._writing() as tx:
            tx.db.execute(delete(outbox).where(outbox.c.id == notice.id))
            tx.db.execute(update(webhooks).where(webhooks.c.id == notice.webhook).values(**works))


def _added_by(db: Connection, owner: str, request: str | None) -> StoredWebhook | None:
    if request is None:
        return None
    query = rows_of(StoredWebhook, webhooks).where(webhooks.c.owner == owner, webhooks.c.request == request)
    row = db.execute(query).first()
    return None if row is None else from_row(StoredWebhook, row)


def _get(db: Connection, id: int) -> StoredWebhook:
    row = db.execute(rows_of(StoredWebhook, webhooks).where(webhooks.c.id == id)).first()
    if row is None:
        raise NotFound(f"there is no webhook {id}: `daylight webhook list` shows yours")
    return from_row(StoredWebhook, row)
