"""Create the engines of pools from their settings."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from kernel_backend.engines.slurm.controller import Controller
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool


class EngineMaker:
    """Create the engine of each pool of a service; those of Slurm share one cache of its queue."""

    def __init__(self, home: Path) -> None:
        self._home, self._controller = home, Controller()

    def __call__(self, pool: Pool) -> SlurmEngine:
        """Return a new engine for a pool."""
        return SlurmEngine(self._home, pool, service_id(self._home), self._controller)


def service_id(home: Path) -> str:
    """Return the name of this home's service in comments of jobs, made up once: paths of homes are not unique."""
    path = home / "service.id"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(8))
        return path.read_text().strip()
