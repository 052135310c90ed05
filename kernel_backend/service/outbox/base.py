"""Define what the outbox asks of a transport, and the error of a delivery that failed."""

from __future__ import annotations

from typing import Protocol

from kernel_backend.errors import DaylightError
from kernel_backend.model.webhooks.payload import Payload
from kernel_backend.model.webhooks.records import StoredWebhook


class NotDelivered(DaylightError):
    """Error: a message was not delivered; `gone` means that the receiver wants no more messages."""

    def __init__(self, message: str, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class Transport(Protocol):
    """Sender of messages to addresses of one kind."""

    async def send(self, hook: StoredWebhook, message: Payload) -> None:
        """Deliver a message, within half a minute; raises NotDelivered."""

    def close(self) -> None:
        """Close all connections."""
