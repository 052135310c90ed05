"""Measure what many gangs at once cost the service and the API server of Kubernetes; count lost and duplicate gangs.

    python benchmarks/kubernetes_many.py [--gangs 500] [--stand-in]

The gangs are the trials of one search, with one pod each, whose launchers only sleep: what is measured is the service,
not the trainings. Nodes, service and API server share this machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.support.kubernetes_clusters import Counted, counted, parser
from kernel_backend import discovery
from kernel_backend.engines.kubernetes.manifests import ATTEMPT
from kernel_backend.model.search.records import Search
from tests.support.world import until

STEADY_S = 60.0
PATIENCE_S = 1800.0
PODS = 100  # of a node; Kubernetes allows 110


class Costs:
    """Measure the CPU time and memory of the service, and its requests, since a given moment."""

    def __init__(self, site: Counted) -> None:
        self._site = site
        address = discovery.find(site.world.home)
        assert address is not None
        self._process = psutil.Process(address.pid)
        self._cpu, self._requests, self._begun = self._used(), site.requests(), time.monotonic()

    def text(self) -> str:
        """Return the costs so far as text."""
        wall, cpu = time.monotonic() - self._begun, self._used() - self._cpu
        memory, requests = self._process.memory_info().rss / 1e6, self._site.requests() - self._requests
        return f"{wall:.0f} s, {cpu:.1f} s of processor time ({cpu / wall:.0%}), {memory:.0f} MB, {requests} requests"

    def _used(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def measure(site: Counted, gangs: int) -> None:
    """Start that many gangs, keep them for a minute, end them; print what each part cost."""
    seen = Counter[str]()

    def all_run() -> bool:
        pods = site.pods()
        seen.update({pod["metadata"]["labels"][ATTEMPT] for pod in pods} - seen.keys())
        return sum(pod.get("status", {}).get("phase") == "Running" for pod in pods) >= gangs

    costs = Costs(site)
    search = Search(method="random", trials=gangs, parallel=gangs, keep_allocation=0)  # else they share kept pods
    options = {"slots": 1, "epochs": 2, "backend": "torch", "pool": "cluster"}
    number = site.world.submit(space="dropout=0.1..0.5", search=search, **options).experiment.number
    until(all_run, "all pods run", PATIENCE_S)
    print(f"{gangs} gangs start: {costs.text()}", flush=True)
    costs = Costs(site)
    time.sleep(STEADY_S)
    print(f"they run: {costs.text()}", flush=True)
    attempts = Counter(pod["metadata"]["labels"][ATTEMPT] for pod in site.pods())
    doubled = sum(count > 1 for count in attempts.values())
    print(f"{gangs - len(attempts)} lost, {doubled} doubled, {len(seen) - len(attempts)} started again", flush=True)
    costs = Costs(site)
    site.world.serve().stop(number)
    site.world.ended(number, PATIENCE_S)
    until(lambda: not site.pods(), "the pods are gone", PATIENCE_S)
    print(f"they end: {costs.text()}", flush=True)


def main() -> None:
    """Measure with the given number of gangs."""
    given = parser(__doc__.splitlines()[0])
    given.add_argument("--gangs", type=int, default=500)
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as name:
        sleeper = Path(name) / "sleeper"
        sleeper.write_text("#!/bin/sh\nexec sleep 3600\n")
        sleeper.chmod(0o755)
        nodes = {"nodes": -(-asked.gangs // PODS), "cpus": PODS, "most_waiting": asked.gangs, "join_timeout": 3600}
        with counted(Path(name), asked.stand_in, python=str(sleeper), **nodes) as site:
            measure(site, asked.gangs)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
