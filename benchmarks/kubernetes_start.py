"""Measure the start of a training on two nodes of Kubernetes, beside two bare pods with the same plain script.

    python benchmarks/kubernetes_start.py [--pairs 5]

Both are submitted to a real control plane on this machine (`scripts/kubernetes` builds it), whose two nodes run pods as
processes of it. The time runs from the creation of the pods, or the submission, to the end of the first step. Bare pods
and Daylight's alternate; the medians and their difference are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.slurm_start import TRAIN, daylight
from tests.support.kubernetes_site import KubernetesSite
from tests.support.kubernetes_world import cluster
from tests.support.ports import free_ports
from tests.support.world import until


def bare(site: KubernetesSite, folder: Path, nth: int) -> float:
    """Return the seconds from the creation of two pods to the end of the first step of a plain script."""
    script, told, (port,) = folder / "train.py", folder / f"told-{nth}", free_ports(1)
    script.write_text(TRAIN)
    begun = time.time()
    for rank in range(2):
        variables = [{"name": "SLURM_PROCID", "value": str(rank)}, {"name": "SLURM_NTASKS", "value": "2"}]
        command = [sys.executable, str(script), str(told), str(port)]
        container = {"name": "main", "image": "test", "command": command, "env": variables}
        container = {**container, "resources": {"requests": {"cpu": "1"}}}
        spec = {"containers": [container], "restartPolicy": "Never"}
        site.admin.create(site.path("pods"), {"metadata": {"name": f"bare-{nth}-{rank}"}, "spec": spec})
    until(told.exists, "the plain script takes a step")
    while not (text := told.read_text()):
        time.sleep(0.01)
    until(lambda: all(pod["status"]["phase"] == "Succeeded" for pod in site.pods()), "both pods end")
    for rank in range(2):
        site.admin.delete(site.path("pods", f"bare-{nth}-{rank}"))
    return float(text) - begun


def main() -> None:
    """Measure pairs, and print them with their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        found = []
        for nth in range(pairs + 1):
            found.append((bare(site, Path(name), nth), daylight(world)))
            until(lambda: not site.pods(), "the pods are gone")
            print(f"bare {found[-1][0]:.1f} s, Daylight {found[-1][1]:.1f} s", flush=True)
    found = found[1:]  # the first pair fills the caches of files
    ours, theirs = statistics.median(own for _, own in found), statistics.median(plain for plain, _ in found)
    more = statistics.median(own - plain for plain, own in found)
    print(f"medians of {pairs}: bare {theirs:.1f} s, Daylight {ours:.1f} s, {more:.1f} s more")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
