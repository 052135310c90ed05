"""Refuse submissions of users or groups that have used up their storage quota."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
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
    more: int = 0  # about to be stored

    @property
    def exceeded(self) -> bool:
        return self.used + self.more >= self.limit

    @property
    def text(self) -> str:
        further = f" and are to have {size(self.more)} more" if self.more else ""
        whose = "your experiments have" if self.kind == "user" else f"the experiments of group {self.name} have"
        return f"{whose} {size(self.used)} on disk{further}, and the limit is {size(self.limit)}"


class StorageLimits:
    """Checker of the storage limits of users and groups; only files of users and groups with a limit are measured."""

    def __init__(self, meter: DiskMeter, stored_quotas: StoredQuotas) -> None:
        self._meter, self._stored_quotas = meter, stored_quotas
        self._measured: dict[str, _Measured] = {}
        # Bytes of snapshots by owner: being stored, and stored since the last measurement.
        self._arriving: Counter[str] = Counter()
        self._stored: Counter[str] = Counter()
        self._measuring = asyncio.Lock()

    async def check(self, owner: str, group: str | None = None, more: int = 0) -> None:
        """Raise Forbidden if a user or a group uses as much storage as its limit allows; measure it if necessary.

        `more` is the size in bytes of a snapshot of the user that the group is to have, too.
        """
        if not any(each.exceeded for each in await self._look(owner, group, FRESH_S, more)):
            return
        for each in await self._look(owner, group, 0.0, more):
            if each.exceeded:
                raise Forbidden(f"{each.text}: {_MAKES_ROOM}")

    @asynccontextmanager
    async def storing(self, owner: str, size: int) -> AsyncIterator[None]:
        """Count a snapshot of `size` bytes that the block stores; raise Forbidden if it exceeds the user's limit."""
        self._arriving[owner] += size  # counted first, so that many at once do not pass together
        try:
            await self.check(owner)
            yield
            self._stored[owner] += size
        finally:
            self._arriving[owner] -= size

    async def warnings(self, owner: str, group: str) -> tuple[str, ...]:
        """Return a warning for each storage limit, of the user or the group, of which at least 80 % is used."""
        found = await self._look(owner, group, FRESH_S)
        return tuple(f"{each.text}: {_MAKES_ROOM}" for each in found if each.used >= WARNED_FROM * each.limit)

    async def _look(self, owner: str, group: str | None, fresh: float, more: int = 0) -> list[_Storage]:
        limits = list(self._limits(owner, group))
        if not limits:
            return []
        members = {owner}
        if group is not None and any(kind == "group" for kind, _, _ in limits):
            members |= set(self._stored_quotas.members("group", group))
        used = {name: await self._used(name, fresh) for name in sorted(members)}
        sums = {
            "user": sum(used[owner].values()),
            "group": sum(each.get(group or "", 0) for each in used.values()),
        }
        coming = {"user": self._arriving[owner], "group": more}
        return [_Storage(kind, name, sums[kind], limit, coming[kind]) for kind, name, limit in limits]

    def _limits(self, owner: str, group: str | None) -> Iterator[tuple[AccountKind, str, int]]:
        accounts: tuple[tuple[AccountKind, str | None], ...] = (("user", owner), ("group", group))
        for kind, name in accounts:
            limit = self._stored_quotas.quota(kind, name).storage if name is not None else None
            if name is not None and limit is not None:
                yield kind, name, limit

    async def _used(self, owner: str, fresh: float) -> Mapping[str, int]:
        async with self._measuring:  # of many concurrent submissions only the first measures
            before = self._measured.get(owner)
            if before is not None and time.monotonic() - before.at < fresh:
                return _with_uploads(before.by_group, self._stored[owner])
            counted = self._stored[owner]
            try:
                by_group = await self._meter.used(owner)
            except (DaylightError, OSError) as error:
                _log.warning("the disk of %s could not be measured for the storage limit: %s", owner, error)
                by_group = {} if before is None else before.by_group
            else:
                self._stored[owner] -= counted  # they were measured now
            self._measured[owner] = _Measured(time.monotonic(), by_group)
            return _with_uploads(by_group, self._stored[owner])


def _with_uploads(by_group: Mapping[str, int], uploaded: int) -> Mapping[str, int]:
    return {**by_group, "": by_group.get("", 0) + uploaded}
