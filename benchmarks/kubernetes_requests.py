"""Count the requests of the engine for Kubernetes to a real API server, with 1, 10 and 50 gangs.

    python benchmarks/kubernetes_requests.py

The gangs have one pod each, which sleeps. Counted are the requests for a gang's whole life except while it waits, and
those per minute while the gangs' states are read once a second, as a service does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.engine import KubernetesEngine
from tests.engines.contract import specifications
from tests.engines.kubernetes_gangs import sleeping_engine
from tests.support.kubernetes_control_plane import control_plane
from tests.support.kubernetes_site import kubernetes_site

MINUTE_S = 60.0


class Count:
    """Count all requests to an API server, watches included."""

    def __init__(self) -> None:
        self.number = 0
        send = Api._send

        async def counted(api: Api, *arguments: Any) -> Any:
            self.number += 1
            return await send(api, *arguments)

        Api._send = counted  # type: ignore[assignment,method-assign]


async def measure(folder: Path, gangs: int, count: Count) -> None:
    """Print the number of requests for that many gangs."""
    engine: KubernetesEngine = sleeping_engine(folder, service=f"s{gangs}")
    make = specifications(folder, folder / "home", "python")
    jobs = [make(number).model_copy(update={"pool": "cloud", "experiment": gangs}) for number in range(1, gangs + 1)]
    begun = count.number
    for job in jobs:
        await engine.submit(job, f"token {job.id}")
    while {each.phase for each in await engine.statuses()} != {"running"}:
        await asyncio.sleep(0.5)
    started, until = count.number, time.monotonic() + MINUTE_S
    while time.monotonic() < until:
        await engine.statuses()
        await engine.nodes()
        await asyncio.sleep(1.0)
    waited = count.number
    for job in jobs:
        await engine.kill(job.id)
        await engine.forget(job.id)
    ended = count.number
    each = f"{(started - begun) / gangs:.1f} to start, {(ended - waited) / gangs:.1f} to end"
    print(f"{gangs} gangs: {each} (each); {waited - started} a minute for all", flush=True)


async def _all(folder: Path) -> None:
    count = Count()
    for gangs in (1, 10, 50):
        await measure(folder, gangs, count)


def main() -> None:
    """Print the counts for each number of gangs."""
    with (
        tempfile.TemporaryDirectory() as name,
        control_plane() as plane,
        kubernetes_site(plane, Path(name), cpus=128) as site,
    ):
        os.environ["KUBECONFIG"] = str(site.config)
        asyncio.run(_all(Path(name)))


if __name__ == "__main__":
    main()
