"""Provide the quotas in force, which come from the hub and from admins, and the names of drained nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kernel_backend.model.cluster.accounts import AccountKind
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.servers import Server
from kernel_backend.store.base import QuotaStore

Key = tuple[AccountKind, str]


class EffectiveQuotas(Protocol):
    """Quotas in force, and names of drained nodes, as the scheduler reads them in every round.

    Reads are cheap. The mappings are never modified: a change replaces them by new ones.
    """

    @property
    def users(self) -> Mapping[str, Quota]:
        """Return the quotas in force by user name; users without an entry have no limit and no guarantee."""

    @property
    def groups(self) -> Mapping[str, Quota]:
        """Return the quotas in force by group name; groups without an entry have no limit and no guarantee."""

    @property
    def drained(self) -> frozenset[str]:
        """Return the names of drained nodes, on which no new gang is started."""

    servers: Sequence[Server]  # notebook servers as the hub reports them; set by `Notebooks`


class StoredQuotas:
    """Quotas in force: those from the hub, overridden by those that admins have set in this service.

    The store is read only by the constructor and `reload`. `each_user` is the quota of users for whom none is set.
    """

    def __init__(self, store: QuotaStore, each_user: Quota | None = None) -> None:
        self._store, self._each_user = store, each_user
        self._directory = Directory(members={}, groups={})
        self._reloading = asyncio.Lock()
        self._take(*self._read())

    users: Mapping[str, Quota]
    groups: Mapping[str, Quota]
    drained: frozenset[str]
    servers: Sequence[Server] = ()

    async def reload(self) -> None:
        """Read the quotas set by admins and the drained nodes again after a change; concurrent calls take turns."""
        async with self._reloading:
            self._take(*await asyncio.to_thread(self._read))

    def _read(self) -> tuple[dict[Key, dict[str, Any]], frozenset[str]]:
        return self._store.quotas(), self._store.drained()

    def _take(self, changed: dict[Key, dict[str, Any]], drained: frozenset[str]) -> None:
        self._changed, self.drained = changed, drained
        self._settle()

    def give(self, directory: Directory) -> None:
        """Replace the users, groups and groups' quotas that the hub has reported before by those in `directory`."""
        if directory != self._directory:
            self._directory = directory
            self._settle()

    def given(self, kind: AccountKind, name: str) -> Quota | None:
        """Return an account's quota without the fields that admins have set in this service; None if there is none.

        A group's quota is that of the hub, a user's that of the service's settings.
        """
        return self._directory.groups.get(name) if kind == "group" else self._each_user

    def changed(self, kind: AccountKind, name: str) -> dict[str, Any]:
        """Return the quota fields that admins have set for an account in this service, by field name."""
        return dict(self._changed.get((kind, name), {}))

    def quota(self, kind: AccountKind, name: str) -> Quota:
        """Return the quota in force for a user or group."""
        in_force = (self.users if kind == "user" else self.groups).get(name)
        return in_force or self.given(kind, name) or Quota()

    def complaints(self, kind: AccountKind, name: str) -> tuple[str, ...]:
        """Return warnings about an account's quota: invalid numbers from the hub, or a guarantee above the limit."""
        from_hub = self._directory.complaints.get(name, ()) if kind == "group" else ()
        return (*from_hub, *self._clashes.get((kind, name), ()))

    def members(self, kind: AccountKind, name: str) -> tuple[str, ...]:
        """Return the users of a group, or the groups of a user (the first is the default group)."""
        return tuple(self._directory.members.get(name, ())) if kind == "user" else tuple(self._members.get(name, ()))

    @property
    def people(self) -> set[Key]:
        """Return the keys (kind, name) of all users and groups that the hub names."""
        found: set[Key] = {("user", name) for name in self._directory.members}
        return found | {("group", name) for name in self._directory.groups}

    @property
    def named(self) -> set[Key]:
        """Return the keys of all accounts that the hub names, or for which admins have set a quota here."""
        return self.people | set(self._changed)

    def _settle(self) -> None:
        self._members: dict[str, list[str]] = {}
        for user in sorted(self._directory.members):
            for group in self._directory.members[user]:
                self._members.setdefault(group, []).append(user)
        users: dict[str, Quota] = {}
        groups = {name: quota for name, quota in self._directory.groups.items() if quota is not None}
        self._clashes: dict[Key, tuple[str, ...]] = {}
        for key, changed in self._changed.items():
            kind, name = key
            quota, clash = _both(self.given(kind, name), changed)
            (users if kind == "user" else groups)[name] = quota
            if clash:
                self._clashes[key] = (clash,)
        if users != getattr(self, "users", None):
            self.users = users
        if groups != getattr(self, "groups", None):
            self.groups = groups


def _both(given: Quota | None, changed: Mapping[str, Any]) -> tuple[Quota, str]:
    """Return the quota `given` with the fields in `changed` replaced, and a warning ("" if there is none).

    A guarantee above the limit is lowered to the limit; the warning says so.
    """
    numbers = {**(given or Quota()).model_dump(), **changed}
    guarantee, limit = numbers["guarantee"], numbers["limit"]
    if limit is None or guarantee <= limit:
        return Quota.model_validate(numbers), ""
    clash = f"a guarantee of {guarantee} is more than the limit of {limit}: it counts as {limit}"
    return Quota.model_validate({**numbers, "guarantee": limit}), clash
