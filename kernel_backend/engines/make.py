"""Create the engine of a pool from its settings."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.engines.base import Engine
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.pools import Pool


def make_engine(pool: Pool, home: Path) -> Engine:
    """Return the engine of a pool; raises InvalidRequest if this version has none of its kind."""
    return _slurm(pool, home)


def _slurm(pool: Pool, home: Path) -> Engine:
    raise InvalidRequest(f"this version has no engine {pool.settings.engine} (for {home})")
