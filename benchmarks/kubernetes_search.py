"""Measure a search of short trials on Kubernetes: its time, and the requests of the service to the API server.

    python benchmarks/kubernetes_search.py [--trials 100] [--parallel 3] [--stand-in]

Each trial is a pod of one slot that trains for about a second, on three nodes of one CPU. Nodes, service and API server
share this machine. A slot is used from the first to the last step of a trial; the rest of its time goes into the start
of the pod, the import of torch, and the end.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.support.kubernetes_clusters import Counted, counted, parser
from kernel_backend.model.search.records import Search
from tests.support.world import until

SECONDS = 1.0  # of training in a trial
STEPS = 16
PATIENCE_S = 3600.0


def search(site: Counted, trials: int, parallel: int) -> None:
    """Run a search to its end; print its time and requests."""
    before, begun = site.requests(), time.monotonic()
    options = {"slots": 1, "epochs": 2, "backend": "torch", "pool": "cluster", "pause": SECONDS / STEPS}
    method = Search(method="random", trials=trials, parallel=parallel)
    number = site.world.submit(space="dropout=0.1..0.5", search=method, **options).experiment.number
    until(lambda: site.world.overview(number).state == "completed", "the search completes", PATIENCE_S)
    wall = time.monotonic() - begun
    until(lambda: not site.pods(), "the pods are gone")
    requests = site.requests() - before
    ends = [(each.granted_at, each.ended_at) for each in site.world.overview(number).attempts]
    held = statistics.median(ended - granted for granted, ended in ends if granted and ended)
    print(
        f"{trials} trials, {parallel} at once: {wall:.0f} s, {wall * parallel / trials:.1f} s of a slot for each, "
        f"of which an attempt holds it for {held:.1f} s (median of {len(ends)}); "
        f"{requests} requests, {requests / trials:.1f} for each trial",
        flush=True,
    )


def main() -> None:
    """Measure one search."""
    given = parser(__doc__.splitlines()[0])
    given.add_argument("--trials", type=int, default=100)
    given.add_argument("--parallel", type=int, default=3)
    asked = given.parse_args()
    with tempfile.TemporaryDirectory() as name, counted(Path(name), asked.stand_in, most_waiting=100) as site:
        search(site, asked.trials, asked.parallel)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
