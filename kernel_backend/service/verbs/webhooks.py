"""Implement operations on webhooks: list, add, remove and test them, and confirm mail addresses."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from contextlib import suppress

from kernel_backend.errors import Conflict, NotFound
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.launch.launch_spec import token_digest
from kernel_backend.model.webhooks.records import NewWebhook, StoredWebhook, Tried, Webhook
from kernel_backend.model.webhooks.rules import (
    DAY_S,
    check_secret,
    check_url,
    must_be_confirmed,
    new_secret,
    redacted,
    unconfirmed,
)
from kernel_backend.service.access import may_submit
from kernel_backend.service.context import Context
from kernel_backend.service.outbox.base import NotDelivered
from kernel_backend.service.outbox.sender import OutboxSender
from kernel_backend.service.verbs.quotas import check_admin
from kernel_backend.store.base import StoreUnavailable

MOST = 20  # webhooks of a user
SEEN_S = 3600.0
_KEY_BYTES = 32


class WebhookVerbs:
    """Operations on webhooks.

    Users see the webhooks that they have added; admins may list and remove all.
    """

    def __init__(self, context: Context, sender: OutboxSender) -> None:
        self._store, self._rules, self._sender = context.store, context.outbox.rules, sender
        self._seen: dict[str, float] = {}  # admin -> when that was stored

    async def webhooks(self, who: Person, everyone: bool) -> list[Webhook]:
        """Return the user's webhooks, or with `everyone` those of all users.

        Raises Forbidden for `everyone` unless the user is an admin.
        """
        if everyone:
            check_admin(who, "the webhooks of all users are listed for admins")
        waiting = await asyncio.to_thread(self._store.waiting_notices)
        found = await asyncio.to_thread(self._store.webhooks)
        return [self._shown(each, waiting.get(each.id, 0)) for each in found if everyone or each.owner == who.name]

    async def add(self, who: Person, new: NewWebhook, request: str | None = None) -> Webhook:
        """Add a webhook, and return it with its secret; a `request` that is repeated adds no second one.

        A mail address that must be confirmed gets a mail with a link. Raises InvalidRequest for an address that is not
        allowed, Forbidden if a user who is no admin requests events of everyone's experiments, and Conflict if the user
        has too many webhooks or has asked for too many of such mails, or if the mail cannot be sent.
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
            request=request,
            admin_at=time.time() if new.everyone else None,
        )
        if must_be_confirmed(hook.url, self._rules):
            added = await self._add_unconfirmed(who, hook)
        else:
            added = await self._add(who, hook)
        return self._shown(added).model_copy(update={"secret": added.secret})

    async def asking(self, id: int, secret: str) -> StoredWebhook:
        """Return the webhook whose address is confirmed by a link; raises NotFound for one that is not valid now."""
        hook: StoredWebhook | None = None
        with suppress(NotFound):
            hook = await asyncio.to_thread(self._store.webhook, id)
        if hook is None or time.time() - hook.at > DAY_S or not hmac.compare_digest(hook.link, token_digest(secret)):
            raise NotFound(
                "this link is not valid any more: it was used, a day has gone by, or its webhook was removed"
            )
        return hook

    async def confirm(self, id: int, secret: str) -> StoredWebhook:
        """Confirm a webhook's address by its link, which is then used up, and return the webhook; raises NotFound."""
        hook = await self.asking(id, secret)
        await asyncio.to_thread(self._store.change_webhook, hook, link="", confirmed_at=time.time())
        return hook

    async def _add_unconfirmed(self, who: Person, hook: StoredWebhook) -> StoredWebhook:
        """Store a webhook that waits for confirmation, and mail its link; if that fails, it is removed again."""
        secret = secrets.token_urlsafe(_KEY_BYTES)
        new = hook.model_copy(update={"link": token_digest(secret)})
        added = await self._add(who, new)
        if added.link != new.link:  # an earlier request, which is repeated, has added it
            return added
        try:
            self._sender.count_link(who.name, added)
            await self._sender.mail_link(added, secret)
        except (Conflict, NotDelivered) as error:
            await self.remove(who, added.id)
            raise Conflict(f"{added.url} is not added, as no mail to confirm it was sent: {error.message}") from None
        return added

    async def _add(self, who: Person, hook: StoredWebhook) -> StoredWebhook:
        entry = _entry(who, "add webhook", hook, "of everyone's experiments") if hook.everyone else None
        return await asyncio.to_thread(self._store.add_webhook, hook, MOST, entry)

    async def remove(self, who: Person, id: int) -> Webhook:
        """Remove a webhook and its notices that are not sent yet; return its last state. Raises NotFound."""
        hook = await self._own(who, id)
        foreign = hook.everyone or hook.owner != who.name
        entry = _entry(who, "remove webhook", hook, f"of {hook.owner}") if foreign else None
        await asyncio.to_thread(self._store.remove_webhook, id, entry)
        return self._shown(hook)

    async def test(self, who: Person, id: int) -> Tried:
        """Send a test message to a webhook; return whether it was delivered.

        A delivery switches a webhook on that was switched off. Raises Conflict for several tests at a time, and for too
        many within a minute, or if its address is not confirmed, and Forbidden if the user might not add such a webhook
        now.
        """
        hook = await self._own(who, id)
        _may_have(who, hook.everyone)
        if hook.link:
            raise Conflict(f"webhook {id}, {hook.url}: {unconfirmed(hook, self._rules, time.time())}")
        problem = await self._sender.test(who.name, hook)
        waiting = await asyncio.to_thread(self._store.waiting_notices)
        return Tried(webhook=self._shown(await self._own(who, id), waiting.get(id, 0)), problem=problem)

    async def seen(self, who: Person) -> None:
        """Note that a user is an admin now, for their webhooks of everyone's experiments; at most once an hour."""
        now = time.time()
        if who.admin and now - self._seen.get(who.name, 0.0) > SEEN_S:
            self._seen[who.name] = now
            with suppress(StoreUnavailable):
                await asyncio.to_thread(self._store.seen_admin, who.name, now)

    def _shown(self, hook: StoredWebhook, waiting: int = 0) -> Webhook:
        fields = hook.model_dump(exclude={"secret", "link", "confirmed_at", "request", "admin_at"})
        todo = unconfirmed(hook, self._rules, time.time())
        return Webhook(**fields | {"url": redacted(hook.url), "waiting": waiting, "unconfirmed": todo})

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


def _entry(who: Person, act: str, hook: StoredWebhook, detail: str) -> AuditEntry:
    where = redacted(hook.url)
    return AuditEntry(at=time.time(), who=who.name, act=act, on=f"webhook {hook.id or where}", detail=detail)
