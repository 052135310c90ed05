"""Measure a search of short trials through kept allocations of Slurm, beside one job for each of its trials.

    python benchmarks/search_allocations.py [--trials 100] [--parallel 3] [--seconds 10]

Both are searches of the same trials in a real Slurm of this machine, which is otherwise idle, three nodes of one CPU.
Utilisation is the part of the time between the first start and the last end in each allocation (or, for jobs, on each
of as many slots) in which a trial runs there. The gaps are those between a trial and the next in the same allocation.
The last trials may be missed: their ends are removed with the allocations. Then it is counted how many requests the
service makes to Slurm's controller with 1, 10 and 50 gangs in the queue.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.engines.allocations.lines import EVENTS, read_lines
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.search.records import Search
from tests.engines.contract import specifications
from tests.support.slurm import Slurm
from tests.support.world import World
from tests.torture.nodes import cluster

Spans = list[list[tuple[float, float]]]  # start and end of each trial, by allocation
STEPS = 16  # of a trial


def submitted(world: World, trials: int, parallel: int, seconds: float, keep: float | None) -> int:
    """Submit a search whose trials each train for that many seconds."""
    search = Search(method="random", trials=trials, parallel=parallel, keep_allocation=keep)
    options = {"slots": 1, "epochs": 2, "backend": "torch", "pool": "cluster", "pause": seconds / STEPS}
    return world.submit(space="dropout=0.1..0.5", search=search, **options).experiment.number


def kept(world: World, number: int) -> Spans:
    """Return when trials ran in each allocation, as the allocations' holders report it."""
    told: dict[Path, list[dict]] = {}
    while world.overview(number).state != "completed":
        for path in world.home.glob(f"allocations/{number}-*/{EVENTS}"):
            told[path] = read_lines(path)[0] or told.get(path, [])
        time.sleep(0.3)
    return [list(_spans(events)) for events in told.values()]


def _spans(events: list[dict]) -> Iterator[tuple[float, float]]:
    begun: dict[str, float] = {}
    for event in events:
        if event["event"] == "started":
            begun[event["key"]] = event["at"]
        elif event["event"] == "ended" and event["key"] in begun:
            yield begun[event["key"]], event["at"]


def single(world: World, site: Slurm, number: int, parallel: int) -> float:
    """Return the utilisation of slots by jobs of one trial each, from the times that Slurm records to the second."""
    while world.overview(number).state != "completed":
        time.sleep(0.3)
    site.idle()
    rows = site.run("squeue", "-h", "-t", "all", "-o", "%j|%M|%S|%e").splitlines()
    jobs = [row.split("|")[1:] for row in rows if row.startswith(f"daylight-{number}.")]
    ran = [(_time(begun), _time(ended)) for _, begun, ended in jobs]
    wall = max(ended for _, ended in ran) - min(begun for begun, _ in ran)
    return sum(ended - begun for begun, ended in ran) / (parallel * wall)


def _time(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def report(spans: Spans) -> None:
    """Print utilisation and gaps."""
    used = sum(ended - begun for each in spans for begun, ended in each)
    there = sum(each[-1][1] - each[0][0] for each in spans if each)
    gaps = [after[0] - before[1] for each in spans for before, after in itertools.pairwise(each)]
    held = statistics.median(ended - begun for each in spans for begun, ended in each)
    print(
        f"kept: {sum(map(len, spans))} trials in {len(spans)} allocations: {used / there:.1%} used; "
        f"gaps median {statistics.median(gaps):.2f} s, most {max(gaps):.2f} s; a trial holds its slot for {held:.0f} s",
        flush=True,
    )


def requests(site: Slurm, folder: Path, gangs: int, seconds: float = 30.0) -> float:
    """Return the requests per minute to the controller while that many gangs wait in the queue."""
    home = folder / f"home-{gangs}"
    engine = SlurmEngine(home, Pool(name="gpu", settings=PoolSettings(engine="slurm", extra=("--hold",))), home.name)
    job = specifications(folder, home, sys.executable)

    async def go() -> float:
        for number in range(1, gangs + 1):
            spec = job(number).model_copy(update={"experiment": number, "keep_allocation": 3600.0 * (number % 2)})
            await engine.submit(spec, "secret")
        await engine.statuses()
        site.run("sdiag", "--reset")
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            assert len(await engine.statuses()) == gangs
            await asyncio.sleep(0.2)
        counts = re.findall(r"(REQUEST_(?:JOB|NODE|PART|SUBMIT|CANCEL|KILL|FED)\w*) .*count:(\d+)", site.run("sdiag"))
        site.run("scancel", "--me")
        return sum(int(count) for _, count in counts) * 60 / seconds

    return asyncio.run(go())


def main() -> None:
    """Measure utilisation and requests, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--single", type=int, default=12, help="trials of the search with a job for each")
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster(Path(name)) as (world, site):
        report(kept(world, submitted(world, given.trials, given.parallel, given.seconds, None)))
        if given.single:
            number = submitted(world, given.single, given.parallel, given.seconds, 0.0)
            used = single(world, site, number, given.parallel)
            print(f"a job for each: {given.single} trials: {used:.1%} used", flush=True)
        os.environ |= site.environment
        for gangs in (1, 10, 50):
            print(f"{gangs} gangs: {requests(site, Path(name), gangs):.0f} requests a minute", flush=True)


if __name__ == "__main__":
    main()
