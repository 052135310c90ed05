"""Who may have what, and which nodes are drained, as it stands at this moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kernel_backend.model.quotas import Quota
from kernel_backend.model.servers import Server


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

    @property
    def servers(self) -> Sequence[Server]:
        """Notebook servers that hold slots beside the jobs; `scheduler.servers.take_in` has a picture hold them."""


class Everybody:
    """Nobody is bounded, no node is drained: a service for one person who has changed nothing."""

    users: Mapping[str, Quota] = {}
    groups: Mapping[str, Quota] = {}
    drained: frozenset[str] = frozenset()
    servers: Sequence[Server] = ()
