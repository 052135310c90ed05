"""Implement operations on webhooks: list, add, remove and test them."""

from __future__ import annotations

import asyncio
import secrets
import time

from kernel_backend.errors import NotFound
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.webhooks.records import NewWebhook, StoredWebhook, Tried, Webhook
from kernel_backend.model.webhooks.rules import check_secret, check_url, new_secret, redacted
from kernel_backend.service.access import may_submit
from kernel_backend.service.context import Context
from kernel_backend.service.outbox.sender import OutboxSender
from kernel_backend.service.verbs.quotas import check_admin

MOST = 20  # webhooks of a user
_KEY_BYTES = 32


class WebhookVerbs:
    """Operations on webhooks.

    Users see the webhooks that they have added; admins may list and remove all.
    """

    def __init__(self, context: Context, sender: OutboxSender) -> None:
        self._store, self._rules, self._sender = context.store, context.outbox.rules, sender

    async def webhooks(self, who: Person, everyone: bool) -> list[Webhook]:
        """Return the user's webhooks, or with `everyone` those of all users.

        Raises Forbidden for `everyone` unless the user is an admin.
        """
        if everyone:
            check_admin(who, "the webhooks of all users are listed for admins")
        waiting = await asyncio.to_thread(self._store.waiting_notices)
        found = await asyncio.to_thread(self._store.webhooks)
        return [_shown(each, waiting.get(each.id, 0)) for each in found if everyone or each.owner == who.name]

    async def add(self, who: Person, new: NewWebhook) -> Webhook:
        """Add a webhook, and return it with its secret.

        Raises InvalidRequest for an address that is not allowed, Forbidden if a user who is no admin requests events of
        everyone's experiments, and Conflict if the user has too many webhooks.
        """
        _may_have(who, new.everyone)
        check_url(new.url, self._rules)
        if new.secret:
            check_secret(new.secret)
        hook = StoredWebhook(
            owner=who.name,
            url=new.url,
            secret=new.secret or new_secret(secrets.token_bytes(_KEY_BYTES)),
            events=tuple(dict.fromkeys(new.events)),
            everyone=new.everyone,
            at=time.time(),
        )
        entry = _entry(who, "add webhook", hook, "of everyone's experiments") if new.everyone else None
        added = await asyncio.to_thread(self._store.add_webhook, hook, MOST, entry)
        return _shown(added).model_copy(update={"secret": added.secret})

    async def remove(self, who: Person, id: int) -> Webhook:
        """Remove a webhook and its notices that are not sent yet; return its last state. Raises NotFound."""
        hook = await self._own(who, id)
        foreign = hook.everyone or hook.owner != who.name
        entry = _entry(who, "remove webhook", hook, f"of {hook.owner}") if foreign else None
        await asyncio.to_thread(self._store.remove_webhook, id, entry)
        return _shown(hook)

    async def test(self, who: Person, id: int) -> Tried:
        """Send a test message to a webhook; return whether it was delivered.

        A delivery switches a webhook on that was switched off. Raises Conflict for several tests at a time, and for too
        many within a minute, and Forbidden if the user might not add such a webhook now.
        """
        hook = await self._own(who, id)
        _may_have(who, hook.everyone)
        problem = await self._sender.test(who.name, hook)
        waiting = await asyncio.to_thread(self._store.waiting_notices)
        return Tried(webhook=_shown(await self._own(who, id), waiting.get(id, 0)), problem=problem)

    async def _own(self, who: Person, id: int) -> StoredWebhook:
        """Return a webhook if the user may change it; raises NotFound, also for a webhook of another user."""
        hook = await asyncio.to_thread(self._store.webhook, id)
        if hook.owner != who.name and not who.admin:
            raise NotFound(f"there is no webhook {id}: `daylight webhook list` shows yours")
        return hook


def _may_have(who: Person, everyone: bool) -> None:
    """Raise Forbidden unless a user may have messages sent; users who may not can still remove their webhooks."""
    if everyone:
        check_admin(who, "only admins are notified of everyone's experiments")
    elif not who.admin:
        may_submit(who)


def _shown(hook: StoredWebhook, waiting: int = 0) -> Webhook:
    fields = hook.model_dump(exclude={"secret"})
    return Webhook(**fields | {"url": redacted(hook.url), "waiting": waiting})


def _entry(who: Person, act: str, hook: StoredWebhook, detail: str) -> AuditEntry:
    where = redacted(hook.url)
    return AuditEntry(at=time.time(), who=who.name, act=act, on=f"webhook {hook.id or where}", detail=detail)
