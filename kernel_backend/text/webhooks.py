"""Format webhooks as text for the command line and notebooks."""

from __future__ import annotations

import time

from kernel_backend.model.webhooks.records import Tried, Webhook
from kernel_backend.text import counted

HEAD = ("id", "address", "events", "experiments", "waiting", "state")


def webhook_row(hook: Webhook) -> tuple[str, ...]:
    """Return a webhook's row in the table with the head HEAD."""
    whose = "everyone's" if hook.everyone else hook.owner
    return str(hook.id), hook.url, ", ".join(hook.events), whose, str(hook.waiting), _state(hook)


def added_lines(hook: Webhook, command: str) -> list[str]:
    """Return lines about a webhook that was added, with its secret."""
    first = f"webhook {hook.id} is notified when an experiment is {' or '.join(hook.events)}"
    if hook.unconfirmed and hook.url.startswith("mailto:"):
        return [f"{first}, once {hook.url.partition(':')[2]} has opened the link in the mail that was sent there"]
    if hook.url.startswith("mailto:"):
        return [first, f"to send a test mail: {command} test {hook.id}"]
    return [
        first,
        f"its messages are signed with the secret {hook.secret}",
        f"which is shown only now; to send a test message: {command} test {hook.id}",
    ]


def tried_line(tried: Tried) -> str:
    """Return a line about the test of a webhook."""
    hook = tried.webhook
    if tried.problem:
        return f"webhook {hook.id}, {hook.url}: {tried.problem}"
    return f"webhook {hook.id}, {hook.url}: the test message was delivered"


def _state(hook: Webhook) -> str:
    lost = f"; {counted(hook.dropped, 'message')} given up" if hook.dropped else ""
    if hook.unconfirmed:
        return hook.unconfirmed.removeprefix("it ")
    if hook.off:
        return f"off: {hook.off}{lost}"
    if hook.problem:
        return f"fails since {_clock(hook.failing_since)}: {hook.problem}{lost}"
    return f"on{'' if hook.delivered_at is None else f', delivered {_clock(hook.delivered_at)}'}{lost}"


def _clock(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
