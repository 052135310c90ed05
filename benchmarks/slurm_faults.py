"""Measure the time from the loss of a rank, and of a node, to the next step of a training on two nodes of Slurm.

    python benchmarks/slurm_faults.py [--runs 5]

Two of three nodes of one CPU, on this machine; steps of 50 ms, a checkpoint every 4 steps. A rank is killed by
`kill -9`; a node is lost by `kill -9` of its slurmd, which Slurm notices after `SlurmdTimeout`, 10 s here.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.model.reports import Report
from tests.support.slurm import Slurm
from tests.support.spools import read_after
from tests.support.world import World, until
from tests.torture.nodes import cluster

OPTIONS = {"pool": "cluster", "slots": 2, "backend": "torch", "epochs": 400, "checkpoint_every": {"steps": 4}}


def again(world: World, site: Slurm, victim: str) -> float:
    """Return the seconds from a loss to the first step of the next attempt."""
    number = world.lasting(pause=0.05, **OPTIONS)
    world.checkpointed(number)
    node = world.overview(number).attempts[-1].nodes[1].name
    ranks = until(lambda: len(found := world.ranks()) == 2 and found, "both ranks are known")
    lost = time.time()
    ranks[1].send_signal(signal.SIGKILL) if victim == "rank" else site.kill(node)

    spool = world.home / "attempts" / f"{number}.1-2" / "spool.jsonl"

    def first_step() -> float | None:
        records = read_after(spool, 0) if spool.exists() else []
        return next((record.at for record in records if isinstance(record, Report)), None)

    seconds = until(first_step, "the next attempt takes a step", 300.0) - lost
    world.serve().stop(number)
    world.ended(number, 300.0)
    if victim == "node":
        site.start(node)
    site.idle()
    return seconds


def main() -> None:
    """Measure both losses in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    found: dict[str, list[float]] = {"rank": [], "node": []}
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        for _ in range(runs):
            for victim, seconds in found.items():
                seconds.append(again(world, site, victim))
                print(f"{victim}: {seconds[-1]:.1f} s", flush=True)
    for victim, seconds in found.items():
        print(f"loss of a {victim}: {statistics.median(seconds):.1f} s to the next step (median of {runs})")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
