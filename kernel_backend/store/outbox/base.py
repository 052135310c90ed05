"""Define the part of a store that holds webhooks and their outbox: the notices that wait for delivery."""

from __future__ import annotations

from typing import Any, Protocol

from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.webhooks.records import Notice, StoredWebhook


class OutboxStore(Protocol):
    """Store of webhooks and of notices about events.

    A notice is stored in the same transaction as the event that it reports.
    """

    def webhooks(self) -> list[StoredWebhook]:
        """Return all webhooks, by id."""

    def webhook(self, id: int) -> StoredWebhook:
        """Return one webhook; raises NotFound."""

    def add_webhook(self, new: StoredWebhook, most: int, entry: AuditEntry | None) -> StoredWebhook:
        """Store a webhook with the next id, and an audit entry if given; raises Conflict if the owner has `most`.

        If the same request of the owner has added one before, return that one.
        """

    def seen_admin(self, owner: str, at: float) -> None:
        """Record that the owner of webhooks for everyone's experiments was an admin at this time."""

    def remove_webhook(self, id: int, entry: AuditEntry | None) -> None:
        """Remove a webhook with its notices, and store the audit entry if given; raises NotFound."""

    def change_webhook(self, hook: StoredWebhook, **changes: Any) -> None:
        """Replace fields of a webhook; if it is switched off, its waiting notices are deleted.

        Does nothing if the webhook was removed meanwhile.
        """

    def waiting_notices(self) -> dict[int, int]:
        """Return how many notices wait for each webhook, by its id; fast if there are none."""

    def next_notice(self, webhook: int) -> Notice | None:
        """Return the oldest notice that waits for a webhook; None if none waits."""

    def delivered(self, notice: Notice, at: float) -> None:
        """Remove a delivered notice, and record that its webhook works."""
