"""Implement operations on users and groups (quotas and slot use) and on the audit log."""

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
from kernel_backend.scheduler.other_programs import located
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.scheduler.usage import averages
from kernel_backend.service.effective_quotas import Key, StoredQuotas
from kernel_backend.store.base import Store

MOST_NAME = 255  # characters of a user's or a group's name
WEEK = 7 * 86400.0

Looking = Callable[[], AbstractAsyncContextManager[ClusterState]]


class QuotaVerbs:
    """Operations on quotas, accounts and the audit log.

    A change wakes the scheduler, which takes it into account in its next decision.
    """

    def __init__(
        self, store: Store, stored_quotas: StoredQuotas, looking: Looking, changed: Callable[[], None]
    ) -> None:
        self._store, self._stored_quotas, self._looking, self._changed = store, stored_quotas, looking, changed
        self._setting = asyncio.Lock()  # each change is checked against the one before it

    def learn(self, directory: Directory) -> None:
        """Replace the known users and groups, which come from the hub, by those in `directory`."""
        self._stored_quotas.give(directory)
        self._changed()

    async def me(self, who: Person) -> Self:
        """Return the calling user, with the quotas and slot usage of the user and of their groups."""
        async with self._looking() as cluster:
            accounts = tuple(map(AccountsSnapshot(self._stored_quotas, cluster, who).account, _own(who)))
            servers = located(
                (each for each in self._stored_quotas.servers if each.owner == who.name), cluster.nodes.values()
            )
        return Self(person=who, accounts=accounts, servers=servers)

    async def accounts(self, who: Person) -> list[Account]:
        """Return all accounts for admins, their own and their groups' for other users; users first, then by name."""
        async with self._looking() as cluster:
            looked = AccountsSnapshot(self._stored_quotas, cluster, who)
            keys = looked.all if who.admin else {*_own(who)}
            return [looked.account(key) for key in sorted(keys, key=lambda key: (key[0] != "user", key[1]))]

    async def set_quota(self, who: Person, kind: AccountKind, name: str, given: Mapping[str, Any]) -> Account:
        """Set the quota fields in `given` for an account; fields that are None are reset to the hub's values.

        Raises Forbidden unless the user is an admin, and InvalidRequest for an invalid number.
        """
        check_admin(who, "quotas are set by admins")
        if not name.isprintable() or len(name) > MOST_NAME:
            raise InvalidRequest(f"{name[:50]!r} is no name: up to {MOST_NAME} printable characters")
        changes = read_changes(given)
        if not changes:
            raise InvalidRequest("nothing was given to set: name a number, such as limit")
        async with self._setting:
            return await self._set(who, (kind, name), changed_by(self._stored_quotas.changed(kind, name), changes))

    async def clear_quota(self, who: Person, kind: AccountKind, name: str) -> Account:
        """Reset all quota fields of an account to the hub's values; raises Forbidden unless the user is an admin."""
        check_admin(who, "quotas are set by admins")
        async with self._setting:
            return await self._set(who, (kind, name), {})

    async def _set(self, who: Person, key: Key, changed: Mapping[str, Any]) -> Account:
        stored_quotas, (kind, name) = self._stored_quotas, key
        before, after = stored_quotas.quota(kind, name), in_force(stored_quotas.given(kind, name), changed)
        if changed != stored_quotas.changed(kind, name):
            detail = changes_text(before, after) or "as before, but set here"
            entry = AuditEntry(at=time.time(), who=who.name, act="quota", on=f"{kind} {name}", detail=detail)
            await asyncio.to_thread(self._store.set_quota, kind, name, changed, entry)
            await stored_quotas.reload()
            self._changed()
        async with self._looking() as cluster:
            return AccountsSnapshot(self._stored_quotas, cluster, who).account(key)

    async def use(
        self, who: Person, kind: AccountKind, name: str, since: float | None, until: float | None, points: int
    ) -> UseOverTime:
        """Return how many slots an account held over time: averages of `points` intervals, by default in a week.

        `since` and `until` are in seconds since the epoch. Raises NotFound for an account that the user may not see.
        """
        if not who.admin and (kind, name) not in _own(who):
            raise NotFound(f"there is no {kind} {name} among those that you may see")
        until = time.time() if until is None else until
        since = until - WEEK if since is None else since
        if not since < until:
            raise InvalidRequest(f"since={since:.0f} is not before until={until:.0f}")
        intervals = await asyncio.to_thread(self._store.held, kind, name, since, until)
        at = [since + (until - since) * nth / points for nth in range(points + 1)]
        held = await asyncio.to_thread(averages, intervals, at, time.time())
        return UseOverTime(at=tuple(at), held=tuple(held), quota=self._stored_quotas.quota(kind, name))

    async def audit(self, who: Person, before: int | None, limit: int, search: str = "") -> list[AuditEntry]:
        """Return the audit log, newest first: actions on other users' or shared objects. For admins only.

        `search` selects entries that contain all of its words; `before` those with lower numbers.
        """
        check_admin(who, "the audit log is for admins")
        return await asyncio.to_thread(self._store.audit, before, limit, search)


class AccountsSnapshot:
    """All accounts with their quotas and slot usage, computed from one state of the cluster."""

    def __init__(self, stored_quotas: StoredQuotas, cluster: ClusterState, who: Person) -> None:
        self._stored_quotas, self._cluster, self._who = stored_quotas, cluster, who
        users, groups = cluster.users, cluster.groups
        seen: set[Key] = {("user", name) for name in users if isinstance(name, str)}
        seen |= {("group", name) for name in groups if isinstance(name, str)}
        seen |= {*_own(who)}
        for request in cluster.queue:
            seen |= {("user", request.owner), ("group", request.group)}
        self._known = {
            key for key in seen | stored_quotas.people if key[1]
        }  # accounts that exist or have used slots, not only ones with a quota set here

    @property
    def all(self) -> set[Key]:
        """Return the keys of all accounts that the hub names, have a quota here, or request or recently held slots."""
        found = self._known | self._stored_quotas.named
        # A user without a group requests slots for a group of their own name, which is not listed separately.
        return {key for key in found if not self._shadow(key)}

    def account(self, key: Key) -> Account:
        """Return the account with the key `key` (kind and name), with its quota and slot usage."""
        (kind, name), stored_quotas, cluster = key, self._stored_quotas, self._cluster
        return Account(
            kind=kind,
            name=name,
            quota=stored_quotas.quota(kind, name),
            given=stored_quotas.given(kind, name),
            changed=stored_quotas.changed(kind, name),
            use=(cluster.users if kind == "user" else cluster.groups).use(name, cluster.at),
            members=stored_quotas.members(kind, name),
            warnings=tuple(self._warnings(key)),
        )

    def _shadow(self, key: Key) -> bool:
        return key[0] == "group" and ("user", key[1]) in self._known and key not in self._stored_quotas.named

    def _warnings(self, key: Key) -> Iterator[str]:
        (kind, name), stored_quotas = key, self._stored_quotas
        yield from stored_quotas.complaints(kind, name)
        if key not in self._known and stored_quotas.changed(kind, name):
            near = nearest(name, (other for of, other in self._known if of == kind))
            yield f"no {kind} of this name is known yet{near}"
        if not stored_quotas.quota(kind, name).guarantee or sum(self._guarantees.values()) <= self._slots:
            return
        if not self._who.admin:
            yield "more is guaranteed than there are slots: not all can have theirs at once"
        else:
            whose = ", ".join(f"{of} {other} ({count})" for (of, other), count in self._guarantees.items())
            total = f"guarantees add up to {sum(self._guarantees.values())} slots, and there are {self._slots}"
            yield f"{total}: not all can have theirs at once: {whose}"

    @cached_property
    def _slots(self) -> int:
        return sum(node.slots for node in self._cluster.nodes.values())

    @cached_property
    def _guarantees(self) -> dict[Key, int]:
        """Return the guaranteed slots by account, without users whose guarantee is included in their group's."""
        stored_quotas = self._stored_quotas
        groups = {name: quota.guarantee for name, quota in stored_quotas.groups.items() if quota.guarantee}
        within = {user for name in groups for user in stored_quotas.members("group", name)}
        users = {name: quota.guarantee for name, quota in stored_quotas.users.items() if quota.guarantee}
        found: dict[Key, int] = {("group", name): count for name, count in sorted(groups.items())}
        return found | {("user", name): count for name, count in sorted(users.items()) if name not in within}


def _own(who: Person) -> list[Key]:
    """Return the keys of the user's account and of their groups' accounts."""
    return [("user", who.name), *(("group", name) for name in who.groups)]


def check_admin(who: Person, what: str) -> None:
    """Raise Forbidden unless the user is an admin; `what` is the message."""
    if not who.admin:
        raise Forbidden(f"{what}: {who.name} is no admin")
