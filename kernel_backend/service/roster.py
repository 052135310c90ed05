"""Who may have what, and which nodes are drained, as it stands at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kernel_backend.model.quotas import Quota


class Roster(Protocol):
    """What a decision reads of people. Cheap: it is asked in every round."""

    @property
    def users(self) -> Mapping[str, Quota]:
        """Quotas in force; who is not named has no limit and no guarantee."""

    @property
    def groups(self) -> Mapping[str, Quota]:
        """The same of groups."""

    @property
    def drained(self) -> frozenset[str]:
        """Names of nodes on which nothing new is started."""


class Everybody:
    """Nobody is bounded, no node is drained: a service for one person who has changed nothing."""

    users: Mapping[str, Quota] = {}
    groups: Mapping[str, Quota] = {}
    drained: frozenset[str] = frozenset()
