"""Hold the objects that the service's parts share: stores and engine, settings, and change notification."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.engines.base import Engine
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.effective_quotas import StoredQuotas
from kernel_backend.service.notebook_servers import Servers
from kernel_backend.service.notifier import Notifier
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Store
from kernel_backend.workspaces.base import Workspaces


@dataclass(frozen=True)
class Context:
    """Objects and settings shared by the parts of one service, created once by the caller of `build`.

    `url` is the service's address for launchers that cannot read its home directory; `servers` gives access to the
    hub's notebook servers, None without a hub; `each_user` is the quota of users for whom admins have set none;
    `keep_logs` is the number of seconds that logs are retained after an experiment ends, None for ever;
    `pool_settings` returns the settings of a pool, None for this machine, and `launcher_urls` the addresses at which
    launchers on other nodes reach the service.
    """

    store: Store
    archive: Archive
    engine: Engine
    checkpoint_storage: CheckpointStorage
    workspaces: Workspaces
    home: Path
    url: str | None = None
    rules: Rules = field(default_factory=Rules)
    each_user: Quota | None = None
    keep_logs: float | None = None
    servers: Servers | None = None
    pool_settings: Callable[[str], PoolSettings | None] = lambda pool: None
    launcher_urls: Callable[[], tuple[str, ...]] = tuple
    bus: Notifier = field(default_factory=Notifier, init=False)
    stored_quotas: StoredQuotas = field(init=False)
    next_round: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored_quotas", StoredQuotas(self.store, self.each_user))

    def wake(self) -> None:
        """Start the loop's next round now."""
        self.next_round.set()
