"""Measure the time from the loss of a rank, and of a node, to the next step of a training on two nodes of Kubernetes.

    python benchmarks/kubernetes_faults.py [--runs 5]

Two of three nodes of one CPU, on a real control plane of this machine; steps of 50 ms, a checkpoint every 4 steps. A
rank is killed by `kill -9`. A node is lost as its kubelet is cut off, and its processes are killed: the controllers
notice that after 8 s here (40 s by default), and end its pods after the 30 s of the pods' own toleration.
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

from benchmarks.slurm_faults import OPTIONS
from kernel_backend.model.reports import Report
from tests.support.kubernetes_site import KubernetesSite
from tests.support.kubernetes_world import cluster
from tests.support.spools import read_after
from tests.support.world import World, until


def again(world: World, site: KubernetesSite, victim: str) -> float:
    """Return the seconds from a loss to the first step of the next attempt."""
    number = world.lasting(pause=0.05, **OPTIONS)
    world.checkpointed(number)
    node = world.overview(number).attempts[-1].nodes[1].name
    ranks = until(lambda: len(found := world.ranks()) == 2 and found, "both ranks are known")
    lost = time.time()
    if victim == "rank":
        ranks[1].send_signal(signal.SIGKILL)
    else:
        site.nodes.lose(node)

    spool = world.home / "attempts" / f"{number}.1-2" / "spool.jsonl"

    def first_step() -> float | None:
        records = read_after(spool, 0) if spool.exists() else []
        return next((record.at for record in records if isinstance(record, Report)), None)

    seconds = until(first_step, "the next attempt takes a step", 300.0) - lost
    world.serve().stop(number)
    world.ended(number, 300.0)
    if victim == "node":
        site.nodes.find(node)
    until(lambda: not site.pods(), "the pods are gone")
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
