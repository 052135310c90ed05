"""Manage accounts: their quotas and use, and the audit log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any

from kernel_backend.errors import Forbidden, InvalidRequest, NotFound
from kernel_backend.model.cluster.accounts import Account, AccountKind, AuditEntry, Self, UseOverTime
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.cluster.quota_settings import changed_by, changes_text, in_force, read_changes
from kernel_backend.model.values import nearest
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.scheduler.usage import averages
from kernel_backend.service.effective_quotas import Key, StoredQuotas
from kernel_backend.store.base import Store

MOST_NAME = 255  # characters of a user's or a group's name
WEEK = 7 * 86400.0

Looking = Callable[[], AbstractAsyncContextManager[ClusterState]]


class QuotaVerbs:
    """Operations on quotas. A change triggers the next decision, which applies it."""

    def __init__(self, store: Store, roster: StoredQuotas, looking: Looking, changed: Callable[[], None]) -> None:
        self._store, self._roster, self._looking, self._changed = store, roster, looking, changed
        self._setting = asyncio.Lock()  # of two changes the second one is checked against the first

    def learn(self, directory: Directory) -> None:
        """Update the users and groups from a hub."""
        self._roster.give(directory)
        self._changed()

    async def me(self, who: Person) -> Self:
        """Return the calling user, with their account and those of their groups."""
        async with self._looking() as picture:
            accounts = tuple(map(AccountsSnapshot(self._roster, picture, who).account, _own(who)))
        servers = tuple(server for server in self._roster.servers if server.owner == who.name)
        return Self(person=who, accounts=accounts, servers=servers)

    async def accounts(self, who: Person) -> list[Account]:
        """Return all accounts to admins, to others their own and their groups'; users first, then by name."""
        async with self._looking() as picture:
            looked = AccountsSnapshot(self._roster, picture, who)
            keys = looked.all if who.admin else {*_own(who)}
            return [looked.account(key) for key in sorted(keys, key=lambda key: (key[0] != "user", key[1]))]

    async def set_quota(self, who: Person, kind: AccountKind, name: str, given: Mapping[str, Any]) -> Account:
        """Set some numbers of an account, and reset others (None) to the hub's.

        Raises Forbidden for users who are no admins, and InvalidRequest with the invalid number.
        """
        check_admin(who, "quotas are set by admins")
        if not name.isprintable() or len(name) > MOST_NAME:
            raise InvalidRequest(f"{name[:50]!r} is no name: up to {MOST_NAME} printable characters")
        changes = read_changes(given)
        if not changes:
            raise InvalidRequest("nothing was given to set: name a number, such as limit")
        async with self._setting:
            return await self._set(who, (kind, name), changed_by(self._roster.changed(kind, name), changes))

    async def clear_quota(self, who: Person, kind: AccountKind, name: str) -> Account:
        """Reset all numbers of an account to the hub's; raises Forbidden for users who are no admins."""
        check_admin(who, "quotas are set by admins")
        async with self._setting:
            return await self._set(who, (kind, name), {})

    async def _set(self, who: Person, key: Key, changed: Mapping[str, Any]) -> Account:
        roster, (kind, name) = self._roster, key
        before, after = roster.quota(kind, name), in_force(roster.given(kind, name), changed)
        if changed != roster.changed(kind, name):
            detail = changes_text(before, after) or "as before, but set here"
            deed = AuditEntry(at=time.time(), who=who.name, act="quota", on=f"{kind} {name}", detail=detail)
            await asyncio.to_thread(self._store.set_quota, kind, name, changed, deed)
            await roster.reload()
            self._changed()
        async with self._looking() as picture:
            return AccountsSnapshot(self._roster, picture, who).account(key)

    async def use(
        self, who: Person, kind: AccountKind, name: str, since: float | None, until: float | None, points: int
    ) -> UseOverTime:
        """Return an account's slots over time, by default of the last week.

        Raises NotFound for one that is not theirs.
        """
        if not who.admin and (kind, name) not in _own(who):
            raise NotFound(f"there is no {kind} {name} among those that you may see")
        until = time.time() if until is None else until
        since = until - WEEK if since is None else since
        if not since < until:
            raise InvalidRequest(f"since={since:.0f} is not before until={until:.0f}")
        spells = await asyncio.to_thread(self._store.held, kind, name, since, until)
        at = [since + (until - since) * nth / points for nth in range(points + 1)]
        held = await asyncio.to_thread(averages, spells, at, time.time())
        return UseOverTime(at=tuple(at), held=tuple(held), quota=self._roster.quota(kind, name))

    async def audit(self, who: Person, before: int | None, limit: int, search: str = "") -> list[AuditEntry]:
        """Return the audit log, newest first: actions on others' or shared objects; for admins.

        A `search` selects entries that have all of its words.
        """
        check_admin(who, "the audit log is for admins")
        return await asyncio.to_thread(self._store.audit, before, limit, search)


class AccountsSnapshot:
    """Accounts at one point in time."""

    def __init__(self, roster: StoredQuotas, picture: ClusterState, who: Person) -> None:
        self._roster, self._picture, self._who = roster, picture, who
        users, groups = picture.users, picture.groups
        seen: set[Key] = {("user", name) for name in users if isinstance(name, str)}
        seen |= {("group", name) for name in groups if isinstance(name, str)}
        seen |= {*_own(who)}
        for ask in picture.queue:
            seen |= {("user", ask.owner), ("group", ask.group)}
        self._known = {key for key in seen | roster.people if key[1]}  # those that exist, and are not only set here

    @property
    def all(self) -> set[Key]:
        """Return accounts that the hub names, that have settings, that request slots or have lately held some."""
        found = self._known | self._roster.named
        # A user without a group requests slots in one of their own name: it need not be shown next to them.
        return {key for key in found if not self._shadow(key)}

    def account(self, key: Key) -> Account:
        """Return one account."""
        (kind, name), roster, picture = key, self._roster, self._picture
        return Account(
            kind=kind,
            name=name,
            quota=roster.quota(kind, name),
            given=roster.given(kind, name),
            changed=roster.changed(kind, name),
            use=(picture.users if kind == "user" else picture.groups).use(name, picture.at),
            members=roster.members(kind, name),
            warnings=tuple(self._warnings(key)),
        )

    def _shadow(self, key: Key) -> bool:
        return key[0] == "group" and ("user", key[1]) in self._known and key not in self._roster.named

    def _warnings(self, key: Key) -> Iterator[str]:
        (kind, name), roster = key, self._roster
        yield from roster.complaints(kind, name)
        if key not in self._known and roster.changed(kind, name):
            near = nearest(name, (other for of, other in self._known if of == kind))
            yield f"no {kind} of this name is known yet{near}"
        if not roster.quota(kind, name).guarantee or sum(self._guarantees.values()) <= self._slots:
            return
        if not self._who.admin:
            yield "more is guaranteed than there are slots: not all can have theirs at once"
        else:
            whose = ", ".join(f"{of} {other} ({count})" for (of, other), count in self._guarantees.items())
            total = f"guarantees add up to {sum(self._guarantees.values())} slots, and there are {self._slots}"
            yield f"{total}: not all can have theirs at once: {whose}"

    @cached_property
    def _slots(self) -> int:
        return sum(node.slots for node in self._picture.nodes.values())

    @cached_property
    def _guarantees(self) -> dict[Key, int]:
        """Return all guarantees; those of users within a group that has one are a part of that."""
        roster = self._roster
        groups = {name: quota.guarantee for name, quota in roster.groups.items() if quota.guarantee}
        within = {user for name in groups for user in roster.members("group", name)}
        users = {name: quota.guarantee for name, quota in roster.users.items() if quota.guarantee}
        found: dict[Key, int] = {("group", name): count for name, count in sorted(groups.items())}
        return found | {("user", name): count for name, count in sorted(users.items()) if name not in within}


def _own(who: Person) -> list[Key]:
    """Return the user's account, then their groups'."""
    return [("user", who.name), *(("group", name) for name in who.groups)]


def check_admin(who: Person, what: str) -> None:
    """Raise Forbidden unless the user is an admin."""
    if not who.admin:
        raise Forbidden(f"{what}: {who.name} is no admin")
