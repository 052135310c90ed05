"""Hold the engines that run one user's gangs (all ranks of an attempt): one for this machine, one per Slurm pool."""

from __future__ import annotations

import threading
from pathlib import Path

from kernel_backend.engines.local import LocalEngine
from kernel_backend.engines.make import EngineMaker
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool


class AgentEngines:
    """Engines that run the gangs of one user; their state is in the user's workspace (the agent's home folder).

    The engine of a pool is created when it is first needed.
    """

    def __init__(self, home: Path) -> None:
        self.local = LocalEngine(home)
        self._make, self._pools = EngineMaker(home), dict[str, tuple[str, SlurmEngine]]()
        self._guard = threading.Lock()

    def of(self, pool: str | None) -> LocalEngine | SlurmEngine:
        """Return the engine of a pool; for None, the engine of this machine.

        `pool` is the pool's name and settings, a `Pool` as JSON text.
        """
        return self.local if pool is None else self.of_pool(pool)

    def of_pool(self, pool: str) -> SlurmEngine:
        """Return the engine of a pool; it is created at the first call, and anew if the pool's settings have changed.

        `pool` is the pool's name and settings, a `Pool` as JSON text.
        """
        name = Pool.model_validate_json(pool).name
        with self._guard:
            settings, engine = self._pools.get(name, ("", None))
            if engine is None or settings != pool:
                engine = self._make.slurm(Pool.model_validate_json(pool))
                self._pools[name] = pool, engine
            return engine
