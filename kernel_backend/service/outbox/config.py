"""Configure the outbox: rules of hosts, and the transports that there are."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_backend.model.webhooks.rules import HostRules
from kernel_backend.service.outbox.base import Transport
from kernel_backend.service.outbox.http import HttpTransport
from kernel_backend.service.outbox.mail import MailTransport


@dataclass(frozen=True)
class OutboxConfig:
    """Rules of hosts, and the mail server with the sender of mail; without a server no mail is sent."""

    rules: HostRules = field(default_factory=HostRules)
    smtp_url: str = ""
    mail_from: str = ""

    def transports(self) -> dict[str, Transport]:
        """Return new transports by scheme of the address."""
        http = HttpTransport(self.rules)
        found: dict[str, Transport] = {"http": http, "https": http}
        return {**found, "mailto": MailTransport(self.smtp_url, self.mail_from)} if self.smtp_url else found
