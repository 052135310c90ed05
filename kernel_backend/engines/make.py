"""Create the engine of each pool from the pool's settings."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from kernel_backend.engines.slurm.controller import Controller
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool


class EngineMaker:
    """Factory of engines for the pools of a service; all its Slurm engines share one cache of Slurm's queue."""

    def __init__(self, home: Path) -> None:
        self._home, self._controller = home, Controller()

    def __call__(self, pool: Pool) -> SlurmEngine | KubernetesEngine:
        """Return a new engine for a pool: a KubernetesEngine or a SlurmEngine, according to the pool's settings."""
        if pool.settings.engine == "kubernetes":
            return KubernetesEngine(self._home, pool, service_id(self._home))
        return self.slurm(pool)

    def slurm(self, pool: Pool) -> SlurmEngine:
        """Return a new Slurm engine for a pool."""
        return SlurmEngine(self._home, pool, service_id(self._home), self._controller)


def service_id(home: Path) -> str:
    """Return the id by which engines tell the objects and jobs of this service from those of other services.

    It is a random name, created at the first call and stored in the home folder; the folder's path would not be unique.
    """
    path = home / "service.id"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(8))
        return path.read_text().strip()
