"""Hold the objects that the service's parts share: stores and engine, settings, and change notification."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.engines.base import Engine
from kernel_backend.engines.make import EngineMaker
from kernel_backend.engines.marks import FolderMarks, Marks
from kernel_backend.engines.pools import Make, PoolEngines
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.idle import IdleRule
from kernel_backend.model.cluster.pools import Pool, read_pool
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.resources import LOCAL
from kernel_backend.model.values import nearest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.effective_quotas import StoredQuotas
from kernel_backend.service.notebook_servers import Servers
from kernel_backend.service.notifier import Notifier
from kernel_backend.service.outbox.config import OutboxConfig
from kernel_backend.service.state.data_nodes import DataNodes
from kernel_backend.service.state.nodes import MarkedNodes
from kernel_backend.service.state.site_loads import SiteLoads
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Store
from kernel_backend.workspaces.base import Workspaces

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Context:
    """Objects and settings shared by the parts of one service, created once by the caller of `build`.

    `engine` is the engine of the local pool. `pools` are the settings of other pools by name, as written in the file
    `configured_in` and not validated yet. `default_pool` is the pool of submissions that name none, by default this
    machine. If the service is `closed`, its local pool is, and no code of users runs as the service. `make` creates the
    engine of a pool, and `engines` has the engines of all pools, including pools stored in
    the database. `marks` finds gangs that an earlier service has left in pools, by default through files in `home`.

    `url` is the service's address for launchers that cannot read its home directory. `launcher_urls` returns the
    addresses at which launchers on other nodes reach the service. `servers` gives access to the hub's notebook servers;
    it is None without a hub. `each_user` is the quota of users for whom admins have set none. `local_price` is the
    price of a slot-hour of the local pool, and `idle_rule` the rule about unused slots. `keep_logs` and `keep_reports`
    are the seconds for which logs, and all training reports, are retained after an experiment ends; None: for ever.
    `outbox` configures webhooks and mail. `pages` is the address of the service's pages in browsers, or under a hub
    that does not say its own their path there; "" if neither is known.
    """

    store: Store
    archive: Archive
    engine: InitVar[Engine]
    checkpoint_storage: CheckpointStorage
    workspaces: Workspaces
    home: Path
    url: str | None = None
    rules: Rules = field(default_factory=Rules)
    each_user: Quota | None = None
    local_price: float | None = None
    idle_rule: IdleRule = field(default_factory=IdleRule)
    keep_logs: float | None = None
    keep_reports: float | None = None
    servers: Servers | None = None
    launcher_urls: Callable[[], tuple[str, ...]] = tuple
    outbox: OutboxConfig = field(default_factory=OutboxConfig)
    pages: str = ""
    pools: Mapping[str, Any] = field(default_factory=dict)
    default_pool: str = ""
    configured_in: str = "the service's configuration"
    closed: bool = False
    make: Make | None = None
    marks: Marks | None = None
    bus: Notifier = field(default_factory=Notifier, init=False)
    engines: PoolEngines = field(init=False)
    stored_quotas: StoredQuotas = field(init=False)
    nodes: MarkedNodes = field(init=False)
    site_loads: SiteLoads = field(init=False)
    data_nodes: DataNodes = field(init=False)
    next_round: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self, engine: Engine) -> None:
        pools, invalid = _pools(self.pools, self.store)
        object.__setattr__(
            self,
            "engines",
            PoolEngines(
                engine,
                self.make or EngineMaker(self.home),
                pools,
                self.marks or FolderMarks(self.home),
                invalid,
                self.closed,
            ),
        )
        if problem := self.default_pool_problem:
            _log.error("default_pool in %s: %s", self.configured_in, problem)
        object.__setattr__(self, "stored_quotas", StoredQuotas(self.store, self.each_user))
        object.__setattr__(self, "nodes", MarkedNodes(self.store, self.engines, self.stored_quotas))
        object.__setattr__(self, "site_loads", SiteLoads(self.engines))
        object.__setattr__(self, "data_nodes", DataNodes(self.store, self.archive))

    @property
    def default_pool_problem(self) -> str:
        """Return why submissions that name no pool cannot be run in the default pool; "" if they can."""
        names = {LOCAL, *(each.name for each in self.engines.statuses_of_pools())}
        wrong = [name for name in self.default_pool.split(",") if name and name not in names]
        return f"there is no pool {wrong[0]}{nearest(wrong[0], names)}" if wrong else ""

    def wake(self) -> None:
        """Make the control loop begin its next round now instead of after its usual wait."""
        self.next_round.set()


def _pools(configured: Mapping[str, Any], store: Store) -> tuple[list[Pool], dict[str, str]]:
    """Return the configured and the stored pools; also, by name of the pool, why its configured settings are invalid.

    A stored pool with the name of a configured one is ignored.
    """
    found: dict[str, Pool] = {}
    invalid: dict[str, str] = {}
    for name, settings in configured.items():
        try:
            found[name] = read_pool(name, settings, configured=True)
        except InvalidRequest as error:
            invalid[str(name)] = error.message
            _log.error("pool %s cannot be used: %s", name, error.message)
    for pool in store.pools():
        if pool.name in found or pool.name in invalid:
            _log.warning("pool %s is configured: its settings in the database do not count", pool.name)
        else:
            found[pool.name] = pool
    return list(found.values()), invalid
