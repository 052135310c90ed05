"""Define the part of a store that holds webhooks and their outbox."""

from __future__ import annotations

from typing import Any, Protocol

from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.webhooks.records import Notice, StoredWebhook


class OutboxStore(Protocol):
    """Store of webhooks and notices. A notice is stored in the same transaction as the event that it reports."""

    def webhooks(self) -> list[StoredWebhook]:
        """Return all webhooks, by id."""

    def webhook(self, id: int) -> StoredWebhook:
        """Return one webhook; raises NotFound."""

    def add_webhook(self, new: StoredWebhook, most: int, entry: AuditEntry | None) -> StoredWebhook:
        """Store a webhook with the next id; raises Conflict if its owner has `most` already."""

    def remove_webhook(self, id: int, entry: AuditEntry | None) -> None:
        """Remove a webhook with its notices; raises NotFound."""

    def change_webhook(self, hook: StoredWebhook, **changes: Any) -> None:
        """Replace fields of a webhook; one that is switched off loses its notices.

        A webhook that was removed is ignored.
        """

    def waiting_notices(self) -> dict[int, int]:
        """Return the number of notices that wait, by webhook; fast if there are none."""

    def next_notice(self, webhook: int) -> Notice | None:
        """Return the oldest notice that waits for a webhook."""

    def delivered(self, notice: Notice, at: float) -> None:
        """Remove a delivered notice, and record that its webhook works."""
