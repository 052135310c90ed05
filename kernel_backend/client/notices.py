"""Call the service's operations on notices: webhooks, and experiments that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_backend.client.calls import Calls
from kernel_backend.model.record import checked
from kernel_backend.model.webhooks.records import ENDS, EndedExperiments, NewWebhook, Tried, Webhook

TEST_S = 60.0  # for the answer of a test, or of what sends a mail


class NoticeCalls(Calls):
    """Calls about webhooks and ended experiments; each raises the DaylightError that the service returned."""

    def webhooks(self, everyone: bool = False) -> list[Webhook]:
        """Return the webhooks of the user or, with `everyone`, of all users.

        Raises Forbidden with `everyone` unless the user is an admin.
        """
        asked = {"everyone": 1} if everyone else None
        return self._list(Webhook, self._service.json("GET", "/api/webhooks", params=asked), "webhooks")

    def add_webhook(self, url: str, events: Sequence[str] = ENDS, secret: str = "", everyone: bool = False) -> Webhook:
        """Add a webhook for these events, and return it with its secret, which no later call returns.

        With `everyone`, it gets the events of all users' experiments. Raises InvalidRequest, Conflict and Forbidden.
        """
        asked = checked(NewWebhook, url=url, events=tuple(events), secret=secret, everyone=everyone)
        return self._read(Webhook, self._service.json("POST", "/api/webhooks", record=asked, timeout=TEST_S))

    def remove_webhook(self, id: int) -> Webhook:
        """Remove a webhook and its notices that are not sent yet, and return its last state; raises NotFound."""
        return self._read(Webhook, self._service.json("DELETE", f"/api/webhooks/{id}"))

    def test_webhook(self, id: int) -> Tried:
        """Make the service send a test message to a webhook now; return whether it was delivered; raises NotFound."""
        return self._read(Tried, self._service.json("POST", f"/api/webhooks/{id}/test", timeout=TEST_S))

    def ended(self, since: int = 0) -> EndedExperiments:
        """Return the user's experiments that ended after `since` (seconds since the epoch), at most twenty."""
        body = self._service.json("GET", "/api/experiments/ended", params={"since": since})
        return self._read(EndedExperiments, body)
