"""Measure the time from the loss of a rank, and of a node, to the next step of a training on two nodes of Slurm.

    python benchmarks/slurm_faults.py [--runs 5]

Two of three nodes of one CPU, on this machine; steps of 50 ms, a checkpoint every 4 steps. A rank is killed by
`kill -9`; a node is lost by `kill -9` of its slurmd, which Slurm notices after `SlurmdTimeout`, 10 s here.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.support.losses import report, resumed, runs
from tests.support.slurm import Slurm
from tests.support.world import World
from tests.torture.nodes import cluster


def again(world: World, site: Slurm, victim: str) -> float:
    """Return the seconds from the loss to the next step."""
    seconds, node = resumed(
        world, lambda rank, node: rank.send_signal(signal.SIGKILL) if victim == "rank" else site.kill(node)
    )
    if victim == "node":
        site.start(node)
    site.idle()
    return seconds


def main() -> None:
    """Measure both losses in turns, and print the medians."""
    count = runs(__doc__.splitlines()[0])
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        report(count, partial(again, world, site))


if __name__ == "__main__":
    main()
