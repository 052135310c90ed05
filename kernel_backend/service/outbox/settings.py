"""Define the service's settings for webhooks and mail, which are read from its configuration."""

from __future__ import annotations

import os
import re
from typing import Any

from traitlets import List, TraitError, Unicode, default, validate
from traitlets.config import Configurable

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.webhooks.rules import HostRules, patterns_problem
from kernel_backend.service.outbox.config import OutboxConfig
from kernel_backend.service.outbox.mail import check_smtp_url


class OutboxSettings(Configurable):
    """Section of the service's configuration on webhooks: `c.Daylight.webhook_hosts` and others."""

    webhook_hosts = List(
        Unicode(),
        help="hosts to which webhooks and mail may go, such as hooks.example.org or *.example.org; all by default. "
        "Under a hub, mail goes only to listed domains or, without a list, to addresses that a link has confirmed; "
        "addresses of private networks are refused unless their host is listed, and those of the service's own machine "
        "and of clouds' credentials unless it is listed without *",
    ).tag(config=True)
    smtp_url = Unicode(
        help="server that sends mail: smtp://host, smtps:// or smtp+starttls://user:password@host:port; none by default"
    ).tag(config=True)
    mail_from = Unicode(help="sender of mail, such as daylight@example.org").tag(config=True)
    public_url = Unicode(
        help="address of the service in users' browsers, for links in mail: https://hub.example.org/services/daylight; "
        "by default what the hub says, if c.JupyterHub.public_url is set"
    ).tag(config=True)

    @validate("webhook_hosts")
    def _valid_hosts(self, proposal: Any) -> list[str]:
        if problem := patterns_problem(proposal["value"]):
            raise TraitError(f"webhook_hosts: {problem}")
        return list(proposal["value"])

    @validate("smtp_url")
    def _valid_server(self, proposal: Any) -> str:
        try:
            check_smtp_url(proposal["value"])
        except InvalidRequest as error:
            raise TraitError(f"smtp_url: {error}") from None
        return str(proposal["value"])

    @default("public_url")
    def _said_by_the_hub(self) -> str:
        return os.environ.get("JUPYTERHUB_PUBLIC_URL", "").rstrip("/")

    @validate("public_url")
    def _valid_address(self, proposal: Any) -> str:
        url = str(proposal["value"])
        if url and not re.fullmatch(r"https?://[^\s?#<>\"]+", url):
            raise TraitError(f"public_url: must begin with https:// and have no query, not {url!r}")
        return url.rstrip("/")

    def outbox(self, inside: bool) -> OutboxConfig:
        """Return the configuration for the delivery of messages; `inside` allows webhooks to addresses of this machine.

        Raises TraitError if a mail server is set without a sender.
        """
        if self.smtp_url and "@" not in self.mail_from:
            raise TraitError(f"mail_from={self.mail_from}: smtp_url needs a sender such as daylight@example.org")
        rules = HostRules(
            hosts=tuple(self.webhook_hosts), inside=inside, mail=bool(self.smtp_url), links=bool(self.public_url)
        )
        return OutboxConfig(rules, self.smtp_url, self.mail_from, self.public_url)
