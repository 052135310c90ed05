"""Call the service's operations on the cluster: accounts and quotas, queue, nodes, pools, and audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from kernel_backend.client.calls import READING_S, Calls, given
from kernel_backend.model.cluster import accounts as sharing
from kernel_backend.model.cluster.accounting import By, SpendingReport
from kernel_backend.model.cluster.pool_check import PoolCheck, PoolCheckRequest
from kernel_backend.model.cluster.pools import PoolSettings, PoolStatus
from kernel_backend.model.disk import DiskReport
from kernel_backend.model.record import checked
from kernel_backend.model.views.overview import NodeUse, Overview

REPORT_S = 300.0  # for a report about all attempts of all time
CHECK_S = 240.0  # for the answer of a check of a pool


class ClusterCalls(Calls):
    """Calls about accounts, queue, nodes, pools and the audit log.

    Each raises the DaylightError that the service returned.
    """

    def me(self) -> sharing.Self:
        """Return the calling user, with the quotas and slot use of the user and of their groups."""
        return self._read(sharing.Self, self._service.json("GET", "/api/me"))

    def disk(self, everyone: bool = False) -> DiskReport:
        """Return the disk usage of the user's experiments or, with `everyone`, of all users' experiments.

        Raises Forbidden with `everyone` unless the user is an admin.
        """
        body = self._service.json("GET", "/api/disk", params={"everyone": int(everyone)}, timeout=READING_S)
        return self._read(DiskReport, body)

    def accounts(self) -> list[sharing.Account]:
        """Return users and groups with quotas and usage: all for admins, else the user's own."""
        return self._list(sharing.Account, self._service.json("GET", "/api/accounts"), "accounts")

    def set_quota(self, kind: sharing.AccountKind, name: str, numbers: Mapping[str, Any]) -> sharing.Account:
        """Set fields of an account's quota to the values in `numbers`, and return the account.

        A value is a number, "none" for no limit, or None to restore the hub's value. Raises Forbidden unless the user
        is an admin, and InvalidRequest for an invalid number.
        """
        body = self._service.json("PUT", f"{_account(kind, name)}/quota", json=dict(numbers))
        return self._read(sharing.Account, body)

    def clear_quota(self, kind: sharing.AccountKind, name: str) -> sharing.Account:
        """Reset all fields of a quota to the hub's values; raises Forbidden unless the user is an admin."""
        return self._read(sharing.Account, self._service.json("DELETE", f"{_account(kind, name)}/quota"))

    def usage(
        self,
        kind: sharing.AccountKind,
        name: str,
        since: float | None = None,
        until: float | None = None,
        points: int = 200,
    ) -> sharing.UseOverTime:
        """Return how many slots an account held over time, as averages of `points` periods from `since` to `until`.

        Both are in seconds since the epoch; the default is the last week. Raises NotFound.
        """
        whole = {"since": since and int(since), "until": until and int(until), "points": points}
        return self._read(
            sharing.UseOverTime, self._service.json("GET", f"{_account(kind, name)}/use", params=given(**whole))
        )

    def spending(self, by: By = "month", since: float | None = None, until: float | None = None) -> SpendingReport:
        """Return slot-hours, energy and cost of trainings, summed by user, group, month or experiment.

        An admin gets those of all users' experiments, any other user only those of their own.
        """
        asked = given(by=by, since=since and int(since), until=until and int(until))
        return self._read(SpendingReport, self._service.json("GET", "/api/usage", params=asked, timeout=REPORT_S))

    def queue(self) -> list[sharing.Waiting]:
        """Return the queue in scheduling order, pool by pool."""
        return self._list(sharing.Waiting, self._service.json("GET", "/api/queue"), "queue")

    def set_priority(self, number: int, priority: int | None) -> Overview:
        """Set the priority of an experiment; None restores the one that its owner requested.

        Raises NotFound, Forbidden, InvalidRequest, Conflict.
        """
        asked = checked(sharing.Priority, priority=priority)
        return self._overview("POST", f"/api/queue/{number}/priority", record=asked)

    def put_first(self, number: int) -> Overview:
        """Move an experiment to the head of the queue; raises NotFound, and Forbidden unless the user is an admin."""
        return self._overview("POST", f"/api/queue/{number}/first")

    def drain(self, name: str) -> NodeUse:
        """Drain a node: start no more gangs on it; raises NotFound, and Forbidden unless the user is an admin."""
        return self._read(NodeUse, self._service.json("POST", f"/api/nodes/{url_part(name)}/drain"))

    def undrain(self, name: str) -> NodeUse:
        """Undrain a node: start gangs on it again; raises the same errors as `drain`."""
        return self._read(NodeUse, self._service.json("POST", f"/api/nodes/{url_part(name)}/undrain"))

    def pools(self) -> list[PoolStatus]:
        """Return the pools: settings, capacity, usage, number of queued requests, and problems."""
        return self._list(PoolStatus, self._service.json("GET", "/api/pools"), "pools")

    def set_pool(self, name: str, settings: PoolSettings) -> PoolStatus:
        """Add a pool, or replace its settings.

        Raises InvalidRequest, Conflict, and Forbidden unless the user is an admin.
        """
        body = self._service.json("PUT", f"/api/pools/{url_part(name)}", record=settings)
        return self._read(PoolStatus, body)

    def remove_pool(self, name: str) -> PoolStatus:
        """Remove a pool, and return its last status; raises NotFound, Forbidden, and Conflict while it is used."""
        return self._read(PoolStatus, self._service.json("DELETE", f"/api/pools/{url_part(name)}"))

    def check_pool(self, name: str, python: str = "", data: str = "") -> PoolCheck:
        """Run a probe program on nodes of a pool to check whether the interpreter `python` can train there.

        With the URL `data`, the nodes also read remote data.
        Takes up to two minutes. Raises NotFound, Conflict for a pool that cannot be checked now, and Forbidden unless
        the user is an admin.
        """
        asked = checked(PoolCheckRequest, python=python, **({"data": data} if data else {}))
        body = self._service.json("POST", f"/api/pools/{url_part(name)}/check", record=asked, timeout=CHECK_S)
        return self._read(PoolCheck, body)

    def audit(self, before: int | None = None, limit: int = 100, search: str = "") -> list[sharing.AuditEntry]:
        """Return at most `limit` audit entries with numbers below `before`, newest first.

        `search` selects entries with all of its words. Raises Forbidden unless the user is an admin.
        """
        asked = given(before=before, limit=limit, search=search or None)
        body = self._service.json("GET", "/api/audit", params=asked)
        return self._list(sharing.AuditEntry, body, "audit")

    def nodes(self) -> list[NodeUse]:
        """Return the nodes, each with the gangs and notebook servers that hold its slots."""
        return self._list(NodeUse, self._service.json("GET", "/api/nodes"), "nodes")


def _account(kind: sharing.AccountKind, name: str) -> str:
    return f"/api/accounts/{kind}/{url_part(name)}"


def url_part(name: str) -> str:
    """Return a name quoted so that it is one segment of a URL's path.

    Even the dots of `.` and `..` are quoted, as clients would remove such segments.
    """
    return quote(name, safe="").replace(".", "%2E") if set(name) == {"."} else quote(name, safe="")
