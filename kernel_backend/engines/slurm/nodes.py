"""List the nodes of a pool's partition by sinfo, at most twice a minute."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.slurm.commands import sinfo
from kernel_backend.engines.slurm.parse import parse_sinfo
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.resources import Node

EVERY_S = 30.0


class PartitionNodes:
    """Cache of the nodes of a pool's partition, as sinfo lists them.

    sinfo also works for users without an account in Slurm.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._asked_at, self._nodes = 0.0, list[Node]()

    async def newest(self) -> Sequence[Node]:
        """Return the nodes, listed at most 30 s ago.

        Raises EngineUnavailable if Slurm does not answer, or lists no node of the partition.
        """
        if not self._asked_at or time.monotonic() > self._asked_at + EVERY_S:
            nodes = parse_sinfo(await sinfo(self._pool), self._pool)
            if not nodes:
                partition = self._pool.settings.partition
                where = f"the partition {partition}" if partition else "its default partition"
                raise EngineUnavailable(f"Slurm knows no nodes of {where}: `sinfo -s` lists its partitions")
            self._asked_at, self._nodes = time.monotonic(), nodes
        return self._nodes
