"""Provide quotas that a test sets; by default no account has a limit, and no node is drained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.servers import Server


@dataclass
class Named:
    """Quotas of users and groups, drained nodes and notebook servers that a test sets."""

    users: Mapping[str, Quota] = field(default_factory=dict)
    groups: Mapping[str, Quota] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    servers: Sequence[Server] = ()
