"""Configure the delivery of webhooks' messages: which hosts may receive them, and how mail is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_backend.model.webhooks.rules import HostRules
from kernel_backend.service.outbox.base import Transport
from kernel_backend.service.outbox.http import HttpTransport
from kernel_backend.service.outbox.mail import MailTransport


@dataclass(frozen=True)
class OutboxConfig:
    """Configuration of the delivery of webhooks' messages: rules about hosts, the mail server, and the sender of mail.

    Without a mail server no mail is sent. `public_url` is the service's address in browsers; "" if it is not known.
    """

    rules: HostRules = field(default_factory=HostRules)
    smtp_url: str = ""
    mail_from: str = ""
    public_url: str = ""

    def transports(self) -> dict[str, Transport]:
        """Return a new transport for each URL scheme that the configuration supports."""
        http = HttpTransport(self.rules)
        found: dict[str, Transport] = {"http": http, "https": http}
        return {**found, "mailto": MailTransport(self.smtp_url, self.mail_from)} if self.smtp_url else found
