"""Refuse submissions of users or groups that have used up their storage quota."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernel_backend.errors import DaylightError, Forbidden
from kernel_backend.model.cluster.accounts import AccountKind
from kernel_backend.model.sizes import size
from kernel_backend.service.disk import DiskMeter
from kernel_backend.service.effective_quotas import StoredQuotas

WARNED_FROM = 0.8  # fraction of a limit from which users are warned
FRESH_S = 300.0  # seconds for which a measurement is reused, unless it would refuse a submission

_log = logging.getLogger(__name__)
_MAKES_ROOM = "daylight du shows by what, and daylight delete and daylight purge make room"


class _Measured(NamedTuple):
    at: float
    by_group: Mapping[str, int]  # bytes


class _Storage(NamedTuple):
    """Bytes of storage that a user or group uses, and how many it may use."""

    kind: AccountKind
    name: str
    used: int
    limit: int

    @property
    def text(self) -> str:
        whose = "your experiments have" if self.kind == "user" else f"the experiments of group {self.name} have"
        return f"{whose} {size(self.used)} on disk, and the limit is {size(self.limit)}"


class StorageLimits:
    """Checker of the storage limits of users and groups; only files of users and groups with a limit are measured."""

    def __init__(self, meter: DiskMeter, stored_quotas: StoredQuotas) -> None:
        self._meter, self._stored_quotas = meter, stored_quotas
        self._measured: dict[str, _Measured] = {}
        self._measuring = asyncio.Lock()

    async def check(self, owner: str, group: str) -> None:
        """Raise Forbidden if a user or a group uses as much storage as its limit allows; measure it if necessary."""
        if not any(each.used >= each.limit for each in await self._look(owner, group, FRESH_S)):
            return
        for each in await self._look(owner, group, 0.0):
            if each.used >= each.limit:
                raise Forbidden(f"{each.text}: {_MAKES_ROOM}")

    async def warnings(self, owner: str, group: str) -> tuple[str, ...]:
        """Return a warning for each storage limit, of the user or the group, of which at least 80 % is used."""
        found = await self._look(owner, group, FRESH_S)
        return tuple(f"{each.text}: {_MAKES_ROOM}" for each in found if each.used >= WARNED_FROM * each.limit)

    async def _look(self, owner: str, group: str, fresh: float) -> list[_Storage]:
        limits = list(self._limits(owner, group))
        if not limits:
            return []
        members = {owner}
        if any(kind == "group" for kind, _, _ in limits):
            members |= set(self._stored_quotas.members("group", group))
        used = {name: await self._used(name, fresh) for name in sorted(members)}
        sums = {
            "user": sum(used[owner].values()),
            "group": sum(each.get(group, 0) for each in used.values()),
        }
        return [_Storage(kind, name, sums[kind], limit) for kind, name, limit in limits]

    def _limits(self, owner: str, group: str) -> Iterator[tuple[AccountKind, str, int]]:
        accounts: tuple[tuple[AccountKind, str], ...] = (("user", owner), ("group", group))
        for kind, name in accounts:
            limit = self._stored_quotas.quota(kind, name).storage
            if limit is not None:
                yield kind, name, limit

    async def _used(self, owner: str, fresh: float) -> Mapping[str, int]:
        async with self._measuring:  # of many concurrent submissions only the first measures
            before = self._measured.get(owner)
            if before is not None and time.monotonic() - before.at < fresh:
                return before.by_group
            try:
                by_group = await self._meter.used(owner)
            except (DaylightError, OSError) as error:
                _log.warning("the disk of %s could not be measured for the storage limit: %s", owner, error)
                by_group = {} if before is None else before.by_group
            self._measured[owner] = _Measured(time.monotonic(), by_group)
            return by_group
