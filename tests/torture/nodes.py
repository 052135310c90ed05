"""kill -9 of whatever takes part in gangs over two nodes of a real Slurm; then the bits are compared.

    python -m tests.torture.nodes --count 30

The victim of each kill is drawn anew: a rank, rank 0 in the middle of a checkpoint, a launcher, the service, a slurmd
(which Slurm takes for a lost node), or slurmctld. Meanwhile it is watched that no experiment ever has two running jobs,
and afterwards that no process of a gang is left.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from tests.support.slurm import Slurm, slurm
from tests.support.world import World, until
from tests.torture.kills import EPOCHS, _over, _submitted, _wait_until_it_trains, differences, outcome, quiet
from tests.torture.victims import kill

VICTIMS = ("rank", "rank 0 in a save", "launcher", "service", "slurmd", "slurmctld")
STAYS = ("service", "slurmctld")  # whose end does not end the gang
PATIENCE_S = 300.0  # Slurm takes half a minute to notice a lost node, and jobs of it a while to end


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[World, Slurm]]:
    """Provide a service on a Slurm of three nodes with one CPU each, so that two slots are on two nodes."""
    with slurm(cpus=1) as site:
        world = World(folder / "home", slots=2)
        world.environment |= site.environment | {"DAYLIGHT_HOME": str(world.home), "DAYLIGHT_SLOTS": "2"}
        (folder / "config.py").write_text("c.Daylight.pools = {'cluster': {'engine': 'slurm', 'partition': 'main'}}\n")
        world.settings = (f"--config={folder / 'config.py'}",)
        world.serve()
        try:
            yield world, site
        finally:
            world.close()


@contextmanager
def watched(site: Slurm) -> Iterator[list[str]]:
    """Record each time at which an attempt's trial has two running jobs."""
    over, found = threading.Event(), list[str]()

    def look() -> None:
        while not over.wait(0.5):
            comments = site.run("squeue", "-h", "-t", "RUNNING", "-o", "%k", check=False).split()
            trials = Counter(comment.split(":")[3].partition("-")[0] for comment in comments if ":" in comment)
            found.extend(f"{trial} has {jobs} running jobs" for trial, jobs in trials.items() if jobs > 1)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield found
    over.set()
    thread.join(30)


def struck(world: World, site: Slurm, number: int, victim: str, draw: random.Random) -> bool:
    """Kill a victim of this kind; return whether there was one."""
    attempt = world.overview(number).attempts[-1]
    if victim == "slurmctld":
        site.saved()
        site.restart("slurmctld")
        return True
    if victim == "slurmd":
        if not attempt.nodes:
            return False
        node = draw.choice(attempt.nodes).name
        site.kill(node)
        until(lambda: _over(world, number) or _attempt(world, number) > attempt.number, "the node is lost", PATIENCE_S)
        site.start(node)
        state = ("sinfo", "-h", "-n", node, "-o", "%T")
        site.wait(lambda: site.run(*state).strip() in ("idle", "allocated", "mixed"), f"{node} is back")
        return True
    return kill(world, number, attempt.number, victim, draw)


def _attempt(world: World, number: int) -> int:
    return world.overview(number).trials[0].attempt


def left_over(world: World, number: int) -> list[psutil.Process]:
    """Return the processes that still belong to a gang of an experiment."""
    found = []
    for process in psutil.process_iter():
        try:
            folder = process.environ().get("DAYLIGHT_ATTEMPT", "")
            if Path(folder).name.startswith(f"{number}.") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def tormented(
    world: World, site: Slurm, number: int, most: int, draw: random.Random, told: Counter[str]
) -> Counter[str]:
    """Kill up to `most` times while a training runs; return the killed processes, which are also added to `told`."""
    done = Counter[str]()

    def over(attempt: int | None = None) -> bool:
        return _over(world, number) or (attempt is not None and _attempt(world, number) > attempt)

    while done.total() < most and not over():
        until(lambda: over() or world.ranks(), "ranks are there", PATIENCE_S)
        _wait_until_it_trains(world, number, draw)
        before, victim = _attempt(world, number), draw.choice(VICTIMS)
        if over() or not struck(world, site, number, victim, draw):
            continue
        done[victim] += 1
        print(f"{(told + done).total()}: {victim} in attempt {before} of #{number}", flush=True)
        if victim not in STAYS:
            until(partial(over, before), "the next attempt", PATIENCE_S)
    world.ended(number, PATIENCE_S)
    until(lambda: not left_over(world, number), "no process of its gangs is left", PATIENCE_S)
    return done


def proof(count: int, seed: int, backend: str, world: World, site: Slurm) -> str:
    """Kill in one training after another until `count` kills are done; return a line with the result."""
    expected = quiet(world, "functions", slots=2, backend="torch", epochs=EPOCHS)
    wanted = {"pool": "cluster", "slots": 2, "backend": backend, "epochs": EPOCHS, "max_restarts": 100}
    draw, done, trainings = random.Random(seed), Counter[str](), 0
    with watched(site) as twice:
        while done.total() < count:
            trainings += 1
            number = _submitted(world, "functions", wanted)
            done += tormented(world, site, number, count - done.total(), draw, done)
            found = differences(expected, outcome(world, number))
            assert not found, (found, f"seed {seed}")
    assert not twice, twice
    victims = ", ".join(f"{number} {victim}" for victim, number in sorted(done.items()))
    return f"{done.total()} of {count} kills survived with equal bits over {backend} ({trainings} trainings; {victims})"


def main() -> None:
    """Run the long proof."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--backends", nargs="+", choices=("horovod", "torch"), default=("horovod", "torch"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as (world, site):
        for nth, backend in enumerate(options.backends):
            count = options.count // len(options.backends)
            print(proof(count, options.seed + nth, backend, world, site), flush=True)
    print(f"all kills survived in {(time.monotonic() - begun) / 60:.0f} min")


if __name__ == "__main__":
    main()
