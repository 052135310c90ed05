"""A service in this process with one pool on a cluster that others use, too, and rules that make changes quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_backend import discovery
from kernel_backend.engines.local import LocalEngine
from kernel_backend.engines.make import EngineMaker
from kernel_backend.model.cluster.pools import read_pool
from kernel_backend.model.views.overview import Overview
from kernel_backend.scheduler.rules import Rules
from tests.api.served import TOKEN, Served
from tests.support.world import World, until

RULES = Rules(min_run=0.0, grace=60.0, restarts=1.0)
PATIENCE_S = 240.0


class SharedSite(World):
    """A service with the pool `cluster`, whose engine is as real as the cluster that the environment names."""

    def __init__(self, home: Path, **settings: Any) -> None:
        super().__init__(home, shared_forkserver=True)
        engine: Any = EngineMaker(home)(read_pool("cluster", settings))
        pools, others = {"cluster": settings}, {"cluster": engine}
        local: Any = LocalEngine(home)
        self.served = Served(home, local, pools=pools, others=others, rules=RULES)
        discovery.write_private(home / "token", TOKEN)
        discovery.announce(home, "127.0.0.1", self.served.port)

    def trains(self, number: int, attempt: int, slots: int) -> Overview:
        """Wait until an attempt has committed a checkpoint; it must have so many slots."""

        def look() -> Overview | None:
            found = self.overview(number)
            own = found.trials[0].checkpoint if found.trials else None
            return found if own is not None and own.endswith(f"-{attempt}") else None

        found = until(look, f"attempt {attempt} of #{number} commits a checkpoint", PATIENCE_S)
        assert found.attempts[-1].slots == slots, found.warnings
        return found

    def close(self) -> None:
        """End the service, and everything that still runs."""
        self.served.stop()
        super().close()
