"""Define the interface of transports, which deliver the messages of webhooks, and the error of a failed delivery."""

from __future__ import annotations

from typing import Protocol

from kernel_backend.errors import DaylightError
from kernel_backend.model.webhooks.payload import Payload
from kernel_backend.model.webhooks.records import StoredWebhook

AT_ONCE = 16  # messages that a transport sends at the same time
PER_OWNER = 2  # of these, messages to webhooks of one owner


class NotDelivered(DaylightError):
    """Error: a message was not delivered. `gone` is True if the receiver has said that it wants no more messages."""

    def __init__(self, message: str, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class Transport(Protocol):
    """Transport that delivers messages to addresses of one kind, such as mail addresses."""

    async def send(self, hook: StoredWebhook, message: Payload) -> None:
        """Send a message to the address of a webhook, within half a minute; raises NotDelivered."""

    def close(self) -> None:
        """Close all connections."""
