"""Measure the time from the loss of a rank, and of a node, to the next step of a training on two nodes of Kubernetes.

    python benchmarks/kubernetes_faults.py [--runs 5]

Two of three nodes of one CPU, on a real control plane of this machine; steps of 50 ms, a checkpoint every 4 steps. A
rank is killed by `kill -9`. A node is lost as its kubelet is cut off, and its processes are killed: the controllers
notice that after 8 s here (40 s by default), and end its pods after the 30 s of the pods' own toleration.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.support.losses import report, resumed, runs
from tests.support.kubernetes_site import KubernetesSite
from tests.support.kubernetes_world import cluster
from tests.support.world import World, until


def again(world: World, site: KubernetesSite, victim: str) -> float:
    """Return the seconds from the loss to the next step."""
    seconds, node = resumed(
        world, lambda rank, node: rank.send_signal(signal.SIGKILL) if victim == "rank" else site.nodes.lose(node)
    )
    if victim == "node":
        site.nodes.find(node)
    until(lambda: not site.pods(), "the pods are gone")
    return seconds


def main() -> None:
    """Measure both losses in turns, and print the medians."""
    count = runs(__doc__.splitlines()[0])
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        report(count, partial(again, world, site))


if __name__ == "__main__":
    main()
