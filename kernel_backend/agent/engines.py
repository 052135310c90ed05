"""Hold the engines that run a user's gangs: one for this machine, and one for each pool that the service names."""

from __future__ import annotations

import threading
from pathlib import Path

from kernel_backend.engines.local import LocalEngine
from kernel_backend.engines.make import EngineMaker
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool


class AgentEngines:
    """Engines of one user's gangs; their state is in the user's workspace (the agent's home folder).

    The engine of a pool is created when it is first needed.
    """

    def __init__(self, home: Path) -> None:
        self.local = LocalEngine(home)
        self._make, self._pools = EngineMaker(home), dict[str, tuple[str, SlurmEngine]]()
        self._guard = threading.Lock()

    def of(self, pool: str | None) -> LocalEngine | SlurmEngine:
        """Return the engine of a pool, given by its record as JSON; for None, the engine of this machine."""
        return self.local if pool is None else self.of_pool(pool)

    def of_pool(self, pool: str) -> SlurmEngine:
        """Return the engine of a pool, given by its record as JSON; a new one if the pool's settings have changed."""
        name = Pool.model_validate_json(pool).name
        with self._guard:
            settings, engine = self._pools.get(name, ("", None))
            if engine is None or settings != pool:
                engine = self._make.slurm(Pool.model_validate_json(pool))
                self._pools[name] = pool, engine
            return engine
