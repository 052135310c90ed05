"""Set quotas and priorities, and report the use of disks and slots."""

from __future__ import annotations

import json
from typing import Any, cast

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.accounts import AccountKind, Priority
from kernel_backend.model.versions import check_values
from kernel_backend.text.csv_export import spending_csv


class AccountQuotaHandler(ApiHandler):
    """Handler that changes and resets an account's quota."""

    async def put(self, kind: str, name: str) -> None:
        """Set fields of an account's quota; null restores the value from the hub. For admins."""
        given = _object(self.body)
        self.reply(await self.service.quotas.set_quota(self.user, cast(AccountKind, kind), name, given))

    async def delete(self, kind: str, name: str) -> None:
        """Restore all fields of an account's quota to the values from the hub. For admins."""
        self.reply(await self.service.quotas.clear_quota(self.user, cast(AccountKind, kind), name))


class QueuePriorityHandler(ApiHandler):
    """Handler that sets an experiment's priority."""

    async def post(self, number: str) -> None:
        """Set the priority of an experiment: an admin may set any, the owner one that the quotas allow."""
        asked = self.parse(Priority)
        self.reply(await self.service.cluster.priority(self.user, int(number), asked.priority))


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


class SpendingCsvHandler(ApiHandler):
    """Handler that exports slot-hours, energy and cost of trainings as CSV."""

    async def get(self) -> None:
        """Return slot-hours, energy and cost of trainings as CSV, with one row per user, group, month or experiment."""
        since, until = self.maybe_integer("since"), self.maybe_integer("until")
        report = await self.service.spending.report(self.user, self.text("by") or "month", since, until)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="usage-by-{report.by}.csv"')
        self.finish(spending_csv(report).encode())


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
    "/api/accounts/{kind}/{name}/quota": AccountQuotaHandler,
    "/api/queue/{number}/priority": QueuePriorityHandler,
    "/api/disk": DiskHandler,
    "/api/usage.csv": SpendingCsvHandler,
}
