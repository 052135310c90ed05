"""Deliver notices about experiments to webhooks, in order for each webhook, with retries until they are delivered."""

from __future__ import annotations

import asyncio
import logging
import time
from uuid import uuid4

from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.webhooks.payload import TEST, Payload, confirmation, payload
from kernel_backend.model.webhooks.records import Notice, StoredWebhook
from kernel_backend.model.webhooks.rules import check_url, must_be_confirmed, reason_off, redacted, unconfirmed
from kernel_backend.retry import RetryPolicy
from kernel_backend.service.notifier import Notifier, wait_for
from kernel_backend.service.outbox.base import AT_ONCE, PER_OWNER, NotDelivered, Transport
from kernel_backend.service.outbox.config import OutboxConfig
from kernel_backend.service.outbox.limits import LinkLimit, TestLimit
from kernel_backend.store.base import Store, StoreUnavailable

LOOK_S = 1.0  # between looks at the outbox, at least
QUIET_S = 60.0  # between looks while nothing changes
BACKOFF = RetryPolicy((1.0, 5.0, 30.0, 120.0, 600.0, 1800.0))

_log = logging.getLogger(__name__)


class OutboxSender:
    """Task that delivers each notice at least once: a notice stays stored until its receiver has confirmed it.

    Each webhook has a task of its own while notices wait for it, and each transport its own places, of which an owner
    gets a few: a slow receiver delays no other, nor other owners.
    """

    def __init__(self, store: Store, bus: Notifier, config: OutboxConfig) -> None:
        self._store, self._bus, self._transports, self._rules = store, bus, config.transports(), config.rules
        self._url, self._links = config.public_url, LinkLimit()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._again: dict[int, asyncio.Event] = {}  # set to retry a webhook now
        self._sending = {transport: OwnerLimit(AT_ONCE, PER_OWNER) for transport in self._transports.values()}
        self._tests = TestLimit()

    async def run(self) -> None:
        """Deliver notices to all webhooks until cancelled."""
        try:
            while True:
                changed = self._bus.listen()
                try:
                    for id in await asyncio.to_thread(self._store.waiting_notices):
                        self._begin(id)
                except StoreUnavailable as error:
                    _log.debug("the outbox is read later: %s", error)
                await asyncio.sleep(LOOK_S)
                await wait_for(changed, QUIET_S)
        finally:
            await self._end()

    async def test(self, user: str, hook: StoredWebhook) -> str:
        """Send a test message to a webhook now, for a user; return why it was not delivered, "" if it was.

        After a delivery, a webhook that was switched off is switched on again, and its waiting notices are sent. Raises
        Conflict if the user tests another one, or has tested too many.
        """
        notice = Notice(seq=0, id=uuid4().hex, webhook=hook.id, event=TEST, experiment=0, at=time.time())
        try:
            with self._tests.of(user):
                await self._send(hook, payload(notice, None))
        except NotDelivered as error:
            return error.message
        await asyncio.to_thread(self._store.change_webhook, hook, off="", problem="", failing_since=None)
        if (waiting := self._again.get(hook.id)) is not None:
            waiting.set()
        return ""

    def count_link(self, user: str, hook: StoredWebhook) -> None:
        """Count a mail with a link to a webhook's address; raises Conflict if there were too many."""
        self._links.count(user, hook.url.partition(":")[2])

    async def mail_link(self, hook: StoredWebhook, secret: str) -> None:
        """Mail the link that confirms a webhook's address; raises NotDelivered."""
        link = f"{self._url}/confirm/{hook.id}-{secret}"
        async with self._sending[self._transport(hook)].of(hook.owner):
            await self._hand_over(hook, confirmation(uuid4().hex, time.time(), self._url, link))

    def _begin(self, id: int) -> None:
        if id not in self._tasks or self._tasks[id].done():
            self._tasks[id] = asyncio.create_task(self._drain(id), name=f"webhook {id}")

    async def _end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for transport in self._transports.values():
            transport.close()

    async def _drain(self, id: int) -> None:
        """Send the notices that wait for a webhook, oldest first, until none is left or the webhook is switched off."""
        failures, again = 0, asyncio.Event()
        self._again[id] = again
        try:
            while True:
                again.clear()
                try:
                    delivered = await self._next(id, failures)
                except StoreUnavailable as error:
                    _log.debug("webhook %d is continued later: %s", id, error)
                    delivered = False
                except Exception:
                    _log.exception("webhook %d is continued later", id)
                    delivered = False
                if delivered is None:
                    return
                failures = 0 if delivered else failures + 1
                if failures:
                    await wait_for(again, BACKOFF.pause(failures))
        finally:
            self._again.pop(id, None)
            self._tasks.pop(id, None)

    async def _next(self, id: int, failures: int) -> bool | None:
        """Send the oldest notice that waits for the webhook `id`, whose last `failures` tries have failed.

        Return True if it was delivered, False if it must be sent again later, and None if there is nothing to send now.
        """
        notice = await asyncio.to_thread(self._store.next_notice, id)
        if notice is None:
            return None
        try:
            hook = await asyncio.to_thread(self._store.webhook, id)
        except NotFound:  # removed meanwhile, with its notices
            return None
        if hook.off or unconfirmed(hook, self._rules, time.time()):
            return None
        message = payload(notice, await self._overview(notice.experiment), self._url)
        try:
            async with self._sending[self._transport(hook)].of(hook.owner):
                await self._send(hook, message)
        except NotDelivered as error:
            return await self._failed(hook, error, failures + 1)
        await asyncio.to_thread(self._store.delivered, notice, time.time())
        return True

    async def _send(self, hook: StoredWebhook, message: Payload) -> None:
        """Send a message to a webhook now.

        Raises NotDelivered for whatever the receiver does wrong, and if the rules no longer allow its address.
        """
        try:
            check_url(hook.url, self._rules)  # the rules may have changed since it was added
            if must_be_confirmed(hook.url, self._rules) and hook.confirmed_at is None:
                raise NotDelivered("the address has to be confirmed: remove the webhook and add it again")
        except InvalidRequest as error:
            raise NotDelivered(error.message) from None
        await self._hand_over(hook, message)

    async def _hand_over(self, hook: StoredWebhook, message: Payload) -> None:
        try:
            await self._transport(hook).send(hook, message)
        except NotDelivered:
            raise
        except Exception as error:  # a receiver may answer anything, which libraries report in many ways
            raise NotDelivered(f"no usable answer: {str(error)[:200] or type(error).__name__}") from None

    def _transport(self, hook: StoredWebhook) -> Transport:
        return self._transports[hook.url.partition(":")[0].lower()]

    async def _overview(self, number: int) -> Overview | None:
        try:
            found = await asyncio.to_thread(self._store.overview, number)
        except NotFound:
            return None
        return None if found.experiment.purged_at is not None else found

    async def _failed(self, hook: StoredWebhook, error: NotDelivered, tries: int) -> bool | None:
        """Record a failed delivery, the `tries`-th in a row.

        Return False if it is to be retried, None if the webhook is now switched off.
        """
        now = time.time()
        since = hook.failing_since or now
        off = reason_off(error.message, since, now, tries, error.gone)
        if off or hook.failing_since is None:
            _log.warning("webhook %d (%s): %s", hook.id, redacted(hook.url), off or error.message)
        changes = {"problem": error.message, "failing_since": since, "off": off}
        await asyncio.to_thread(self._store.change_webhook, hook, **changes)
        return None if off else False
