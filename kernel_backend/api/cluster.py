"""Manage a shared cluster: quotas, usage, queue, nodes, pools and audit log."""

from __future__ import annotations

import json
from typing import Any, cast

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.accounting import SpendingReport
from kernel_backend.model.cluster.accounts import AccountKind, Priority
from kernel_backend.model.versions import check_values
from kernel_backend.text.csv_export import spending_csv

POINTS, MOST_POINTS = 200, 2000
ROWS, MOST_ROWS = 1000, 100_000  # rows of each pool's queue, by default and at most
ENTRIES, MOST_ENTRIES = 100, 1000


class MeHandler(ApiHandler):
    """Handler that describes the calling user."""

    async def get(self) -> None:
        """Return the calling user, and the quotas and slot usage of the user and of their groups."""
        self.reply(await self.service.quotas.me(self.user))


class AccountsHandler(ApiHandler):
    """Handler that lists accounts: users and groups."""

    async def get(self) -> None:
        """List accounts with quotas and usage: all accounts for admins, their own and their groups' for other users."""
        self.reply({"accounts": await self.service.quotas.accounts(self.user)})


class AccountQuotaHandler(ApiHandler):
    """Handler that changes and resets an account's quota."""

    async def put(self, kind: str, name: str) -> None:
        """Set fields of an account's quota; null restores the value from the hub. For admins."""
        given = _object(self.body)
        self.reply(await self.service.quotas.set_quota(self.user, cast(AccountKind, kind), name, given))

    async def delete(self, kind: str, name: str) -> None:
        """Restore all fields of an account's quota to the values from the hub. For admins."""
        self.reply(await self.service.quotas.clear_quota(self.user, cast(AccountKind, kind), name))


class AccountUseHandler(ApiHandler):
    """Handler that reports an account's usage over time."""

    async def get(self, kind: str, name: str) -> None:
        """Return how many slots an account held over time; by default in the last week."""
        since, until = self.maybe_integer("since"), self.maybe_integer("until")
        points = self.integer("points", POINTS, least=1, most=MOST_POINTS)
        self.reply(await self.service.quotas.use(self.user, cast(AccountKind, kind), name, since, until, points))


class QueueHandler(ApiHandler):
    """Handler that lists the queued requests."""

    async def get(self) -> None:
        """List the queued requests of each pool in scheduling order. Requests of other users are anonymous."""
        limit = self.integer("limit", ROWS, least=1, most=MOST_ROWS)
        self.reply({"queue": await self.service.cluster.queue(self.user, limit)})


class QueuePriorityHandler(ApiHandler):
    """Handler that sets an experiment's priority."""

    async def post(self, number: str) -> None:
        """Set the priority of an experiment: an admin may set any, the owner one that the quotas allow."""
        asked = self.parse(Priority)
        self.reply(await self.service.cluster.priority(self.user, int(number), asked.priority))


class QueueFirstHandler(ApiHandler):
    """Handler that moves an experiment to the head of the queue."""

    async def post(self, number: str) -> None:
        """Move an experiment ahead of all queued requests. For admins."""
        self.reply(await self.service.cluster.first(self.user, int(number)))


class DiskHandler(ApiHandler):
    """Handler that reports the disk usage of users and experiments."""

    async def get(self) -> None:
        """Return the disk usage of the user's experiments, or with `everyone=1` of all users' (admins).

        At most the `largest` experiments are listed; the totals by user include all experiments.
        """
        everyone = self.maybe_integer("everyone", least=0) or 0
        largest = self.maybe_integer("largest", least=0)
        report = await self.service.disk.report(self.user, bool(everyone))
        self.reply(report.model_copy(update={"experiments": report.experiments[:largest]}))


class SpendingHandler(ApiHandler):
    """Handler that reports slot-hours, energy and cost of trainings."""

    async def get(self) -> None:
        """Return slot-hours, energy and cost of trainings, summed by user, group, month or experiment.

        Admins get those of all users' experiments, others only of their own.
        """
        self.reply(await self._report())

    async def _report(self) -> SpendingReport:
        since, until = self.maybe_integer("since"), self.maybe_integer("until")
        return await self.service.spending.report(self.user, self.text("by") or "month", since, until)


class SpendingCsvHandler(SpendingHandler):
    """Handler that exports slot-hours, energy and cost of trainings as CSV."""

    async def get(self) -> None:
        """Return slot-hours, energy and cost of trainings as CSV, with one row per user, group, month or experiment."""
        report = await self._report()
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="usage-by-{report.by}.csv"')
        self.finish(spending_csv(report).encode())


class NodesHandler(ApiHandler):
    """Handler that lists the nodes."""

    async def get(self) -> None:
        """List the nodes, and the gangs and notebook servers on their slots."""
        self.reply({"nodes": await self.service.cluster.nodes(self.user)})


class DrainHandler(ApiHandler):
    """Handler that drains a node."""

    async def post(self, name: str) -> None:
        """Drain a node: start no new gangs on it. Running gangs continue. For admins."""
        self.reply(await self.service.cluster.drain(self.user, name))


class UndrainHandler(ApiHandler):
    """Handler that undrains a node."""

    async def post(self, name: str) -> None:
        """Undrain a node: start gangs on it again. For admins."""
        self.reply(await self.service.cluster.drain(self.user, name, drained=False))


class PoolsHandler(ApiHandler):
    """Handler that lists the pools: groups of nodes with a queue of their own."""

    async def get(self) -> None:
        """List the pools: settings, nodes, slots in use, the number of queued requests, and problems."""
        self.reply({"pools": await self.service.pools.statuses(self.user)})


class AuditHandler(ApiHandler):
    """Handler that lists the audit log."""

    async def get(self) -> None:
        """List actions on shared settings and on other users' objects, newest first. For admins."""
        limit = self.integer("limit", ENTRIES, least=1, most=MOST_ENTRIES)
        before, search = self.maybe_integer("before"), self.text("search") or ""
        self.reply({"audit": await self.service.quotas.audit(self.user, before, limit, search)})


def _object(body: bytes) -> dict[str, Any]:
    """Return the request body as a JSON object; raises InvalidRequest."""
    try:
        check_values(body)
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest('body: must be a JSON object such as {"limit": 8}') from None
    if not isinstance(found, dict):
        raise InvalidRequest(f'body: must be a JSON object such as {{"limit": 8}}, not {str(found)[:100]}')
    return found


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/me": MeHandler,
    "/api/accounts": AccountsHandler,
    "/api/accounts/{kind}/{name}/quota": AccountQuotaHandler,
    "/api/accounts/{kind}/{name}/use": AccountUseHandler,
    "/api/queue": QueueHandler,
    "/api/queue/{number}/priority": QueuePriorityHandler,
    "/api/queue/{number}/first": QueueFirstHandler,
    "/api/disk": DiskHandler,
    "/api/usage": SpendingHandler,
    "/api/usage.csv": SpendingCsvHandler,
    "/api/nodes": NodesHandler,
    "/api/nodes/{name}/drain": DrainHandler,
    "/api/nodes/{name}/undrain": UndrainHandler,
    "/api/pools": PoolsHandler,
    "/api/audit": AuditHandler,
}
