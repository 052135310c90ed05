"""Who may have what, and which nodes are drained, as it stands at this moment."""

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
    """What a decision reads of people. Cheap: it is asked in every round. What changes is another object then."""

    @property
    def users(self) -> Mapping[str, Quota]:
        """Quotas in force; who is not named has no limit and no guarantee."""

    @property
    def groups(self) -> Mapping[str, Quota]:
        """The same of groups."""

    @property
    def drained(self) -> frozenset[str]:
        """Names of nodes on which nothing new is started."""

    servers: Sequence[Server]  # notebook servers that hold slots beside the gangs; `Notebooks` gives them


class StoredQuotas:
    """What the hub gives, overridden number by number by what is set here. The store is read only when that changes."""

    def __init__(self, store: QuotaStore) -> None:
        self._store = store
        self._directory = Directory(members={}, groups={})
        self._reloading = asyncio.Lock()
        self._take(*self._read())

    users: Mapping[str, Quota]
    groups: Mapping[str, Quota]
    drained: frozenset[str]
    servers: Sequence[Server] = ()

    async def reload(self) -> None:
        """Read what is set here, once it has changed; what is read last counts."""
        async with self._reloading:
            self._take(*await asyncio.to_thread(self._read))

    def _read(self) -> tuple[dict[Key, dict[str, Any]], frozenset[str]]:
        return self._store.quotas(), self._store.drained()

    def _take(self, changed: dict[Key, dict[str, Any]], drained: frozenset[str]) -> None:
        self._changed, self.drained = changed, drained
        self._settle()

    def give(self, directory: Directory) -> None:
        """Take in what the hub says now: its users with their groups, and what each of its groups may have."""
        if directory != self._directory:
            self._directory = directory
            self._settle()

    def given(self, kind: AccountKind, name: str) -> Quota | None:
        """What the hub gives; None where it says nothing."""
        return self._directory.groups.get(name) if kind == "group" else None

    def changed(self, kind: AccountKind, name: str) -> dict[str, Any]:
        """The numbers that are set here."""
        return dict(self._changed.get((kind, name), {}))

    def quota(self, kind: AccountKind, name: str) -> Quota:
        """What is in force."""
        return (self.users if kind == "user" else self.groups).get(name, Quota())

    def complaints(self, kind: AccountKind, name: str) -> tuple[str, ...]:
        """What of the hub's numbers, or of both together, cannot be."""
        from_hub = self._directory.complaints.get(name, ()) if kind == "group" else ()
        return (*from_hub, *self._clashes.get((kind, name), ()))

    def members(self, kind: AccountKind, name: str) -> tuple[str, ...]:
        """Of a group those whom the hub names, of a user the groups, the first of which they ask in."""
        return tuple(self._directory.members.get(name, ())) if kind == "user" else tuple(self._members.get(name, ()))

    @property
    def people(self) -> set[Key]:
        """All accounts that the hub names."""
        found: set[Key] = {("user", name) for name in self._directory.members}
        return found | {("group", name) for name in self._directory.groups}

    @property
    def named(self) -> set[Key]:
        """All accounts that the hub names, or that something is set of."""
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
    """What is in force; where the hub has come to say something else since, the limit wins over the guarantee."""
    numbers = {**(given or Quota()).model_dump(), **changed}
    guarantee, limit = numbers["guarantee"], numbers["limit"]
    if limit is None or guarantee <= limit:
        return Quota.model_validate(numbers), ""
    clash = f"a guarantee of {guarantee} is more than the limit of {limit}: it counts as {limit}"
    return Quota.model_validate({**numbers, "guarantee": limit}), clash
