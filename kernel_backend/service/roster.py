"""Who may have what, and which nodes are drained, as it stands at this moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kernel_backend.model.quotas import Quota
from kernel_backend.model.servers import Server
from kernel_backend.model.sharing import AccountKind
from kernel_backend.store.base import Sharing

Key = tuple[AccountKind, str]


class Roster(Protocol):
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

    @property
    def servers(self) -> Sequence[Server]:
        """Notebook servers that hold slots beside the jobs; `scheduler.servers.take_in` has a picture hold them."""


class Everybody:
    """Nobody is bounded, no node is drained: a service for one person who has changed nothing."""

    users: Mapping[str, Quota] = {}
    groups: Mapping[str, Quota] = {}
    drained: frozenset[str] = frozenset()
    servers: Sequence[Server] = ()


class Directory(NamedTuple):
    """The people of a hub, and what it gives them."""

    users: Mapping[str, Sequence[str]] = {}  # with their groups, in the hub's order
    groups: Mapping[str, Quota | None] = {}  # None: it says nothing of them
    complaints: Mapping[str, Sequence[str]] = {}  # by group: what of its numbers cannot be


class StoredRoster:
    """What the hub gives, overridden number by number by what is set here. The store is read only when that changes."""

    def __init__(self, store: Sharing) -> None:
        self._store = store
        self._directory = Directory()
        self.reload()

    users: Mapping[str, Quota]
    groups: Mapping[str, Quota]
    drained: frozenset[str]
    servers: Sequence[Server] = ()

    def reload(self) -> None:
        """Read what is set here, once it has changed. Blocks."""
        self._changed = self._store.quotas()
        self.drained = self._store.drained()
        self._settle()

    def give(
        self,
        users: Mapping[str, Sequence[str]],
        groups: Mapping[str, Quota | None],
        complaints: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Take in what the hub says now: its users with their groups, and what each of its groups may have."""
        directory = Directory(users, groups, complaints or {})
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
        users = self._directory.users
        if kind == "user":
            return tuple(users.get(name, ()))
        return tuple(sorted(user for user, groups in users.items() if name in groups))

    @property
    def named(self) -> set[Key]:
        """All accounts that the hub names, or that something is set of."""
        found: set[Key] = set(self._changed)
        found |= {("user", name) for name in self._directory.users}
        return found | {("group", name) for name in self._directory.groups}

    def _settle(self) -> None:
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


def in_force(given: Quota | None, changed: Mapping[str, Any]) -> Quota:
    """What the hub gives, overridden number by number; raises ValidationError where the two cannot be together."""
    return Quota.model_validate({**(given or Quota()).model_dump(), **changed})


def _both(given: Quota | None, changed: Mapping[str, Any]) -> tuple[Quota, str]:
    """What is in force; where the hub has come to say something else since, the limit wins over the guarantee."""
    numbers = {**(given or Quota()).model_dump(), **changed}
    guarantee, limit = numbers["guarantee"], numbers["limit"]
    if limit is None or guarantee <= limit:
        return Quota.model_validate(numbers), ""
    clash = f"a guarantee of {guarantee} is more than the limit of {limit}: it counts as {limit}"
    return Quota.model_validate({**numbers, "guarantee": limit}), clash
