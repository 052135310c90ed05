"""Measure the cost of a resize: the seconds without a step, beside a pause and a resume by hand with other slots.

    python benchmarks/elastic_resize.py [--runs 3] [--where local slurm]

An elastic training of 1..2 slots, in steps of 0.1 s on one slot, records the time at which each step begins. A resize
takes the time from the last step before to the first one after. Daylight shrinks the training when another user
submits, and lets it grow when that user's training has ended. By hand, a script pauses the same training, checks every
20 ms whether it is paused, and resumes it with the other number of slots. Slurm is a real one on this machine, with
three nodes of one CPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["DAYLIGHT_SLOTS"] = "2"

from tests.support.shared_cluster import BORROWS, Lent
from tests.support.shared_site import RULES, SharedSite
from tests.support.slurm import Slurm, slurm
from tests.support.world import LASTING, World, until

# Each logical worker notes when its part of a step begins.
NOTED = LASTING.replace('hurry="")', 'hurry="", begins="")').replace(
    "    time.sleep(0.0", '    with open(begins, "a") as file: file.write(f"{time.time()}\\n")\n    time.sleep(0.0'
)
RESIZES = ("shrinks", "grows", "2 to 1 by hand", "1 to 2 by hand")
PAUSE_S = 0.05  # of each of the two logical workers
Other = Callable[[], Callable[[], object]]  # submits a job that waits for the second slot; returns how to end it


@contextmanager
def local(folder: Path) -> Iterator[tuple[World, dict[str, Any], Other]]:
    """Yield a service with the two slots of this machine, options of the training, and the other user's requests."""
    world = Lent(folder / "home", RULES)

    def other() -> Callable[[], object]:
        number = world.asks(BORROWS, slots=1, epochs=100_000, pause=0.1)
        return lambda: world.served.client().stop(number)

    try:
        yield world, {"group": BORROWS}, other
    finally:
        world.close()


@contextmanager
def on_slurm(folder: Path) -> Iterator[tuple[World, dict[str, Any], Other]]:
    """Yield the same as `local`, on a Slurm pool of three nodes of one CPU, which others use without Daylight."""
    with slurm(cpus=1) as site:
        os.environ |= {name: site.environment[name] for name in ("SLURM_CONF", "PATH")}
        world = SharedSite(folder / "home", engine="slurm", partition="main")
        try:
            yield world, {"pool": "cluster"}, lambda: _job(site)
        finally:
            world.close()


def _job(site: Slurm) -> Callable[[], object]:
    id = site.run("sbatch", "--parsable", "--nodes=2", "--wrap=sleep 3600", "--output=/dev/null").strip()
    return lambda: site.run("scancel", id)


class Training:
    """Elastic training of 1..2 slots that records the times of its steps."""

    def __init__(self, world: World, folder: Path, options: dict[str, Any]) -> None:
        self._world, self._steps = world, folder / "steps"
        self._steps.touch()
        options = options | {"epochs": 100_000, "checkpoint_every": {"steps": 8}, "logical_workers": 2}
        self.number = world.lasting(NOTED, PAUSE_S, slots=2, least_slots=1, begins=str(self._steps), **options)
        self._client = world.served.client()  # type: ignore[attr-defined]

    def trains(self, attempt: int, slots: int) -> None:
        """Wait until attempt number `attempt` runs with `slots` slots and has committed a checkpoint."""

        def look() -> bool:
            found = self._world.overview(self.number)
            own = found.trials[0].checkpoint if found.trials else None
            return own is not None and own.endswith(f"-{attempt}") and found.attempts[-1].slots == slots

        until(look, f"attempt {attempt} trains on {slots} slots", 300.0)

    def longest(self, act: Callable[[], object], attempt: int, slots: int) -> float:
        """Call `act`, which leads to attempt number `attempt`; return the longest time between two steps in seconds."""
        known = len(self._times())
        act()
        self.trains(attempt, slots)
        return max(after - before for before, after in pairwise(self._times()[known - 1 :]))

    def by_hand(self, slots: int) -> None:
        """Pause the training, and resume it with a fixed number of slots."""
        self._client.pause(self.number)
        while self._client.experiment(self.number).trials[0].state != "paused":
            time.sleep(0.02)
        self._client.resume(self.number, slots)

    def end(self) -> None:
        """Stop the training."""
        self._client.stop(self.number)
        self._world.ended(self.number)

    def _times(self) -> list[float]:
        return sorted(float(line) for line in self._steps.read_text().split())


def measured(world: World, folder: Path, options: dict[str, Any], other: Other) -> tuple[float, float, float, float]:
    """Return the seconds of: shrinking and growing by itself, then from two slots to one and back by hand."""
    training = Training(world, folder, options)
    training.trains(1, slots=2)
    gone: list[Callable[[], object]] = []
    shrinks = training.longest(lambda: gone.append(other()), attempt=2, slots=1)
    grows = training.longest(gone[0], attempt=3, slots=2)
    less = training.longest(lambda: training.by_hand(1), attempt=4, slots=1)
    more = training.longest(lambda: training.by_hand(2), attempt=5, slots=2)
    training.end()
    return shrinks, grows, less, more


def main() -> None:
    """Measure all resizes `--runs` times, and print medians with the smallest and largest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--where", nargs="+", choices=["local", "slurm"], default=["local", "slurm"])
    given = parser.parse_args()
    for name in given.where:
        with tempfile.TemporaryDirectory() as folder:
            place = local if name == "local" else on_slurm
            with place(Path(folder)) as (world, options, other):
                runs = []
                for nth in range(given.runs):
                    own = Path(folder, str(nth))
                    own.mkdir()
                    runs.append(measured(world, own, options, other))
        print(f"{name}, load {os.getloadavg()[0]:.1f}")
        for what, seconds in zip(RESIZES, zip(*runs, strict=True), strict=True):
            print(f"  {what:15} {median(seconds):6.2f} s  ({min(seconds):.2f} to {max(seconds):.2f})", flush=True)


if __name__ == "__main__":
    main()
