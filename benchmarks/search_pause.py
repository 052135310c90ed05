"""Measure the cost of pausing a trial and resuming it: the same training paused after each epoch, and never paused.

    python benchmarks/search_pause.py [--runs 3] [--epochs 8] [--epoch-seconds 4]

One slot, a real service; a class in the cell pauses its only trial at the end of each epoch, and resumes it at once.
What is counted is the time for which the slot is held, beyond that of the training which is never paused, and the time
from one hold to the next. Both must end with the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_backend.client import Client
from kernel_backend.store.sql import SqlStore
from tests.support.world import DEFINITION, World, until

STEPS = 8  # of an epoch
PAUSING = """
class Pausing:
    interval = 1
    def __init__(self, space, settings): self.paused = False
    def ask(self, trial):
        if trial == 1: return {"lr": 0.01}
        paused, self.paused = self.paused, False
        return 1 if paused else None
    def tell(self, trial, params, unit, value):
        self.paused = True
        return "pause"
"""


class Held(NamedTuple):
    """Record a trial that has ended: how long its attempts held the slot, and the time between them."""

    slot: float  # seconds
    idle: float  # seconds between two attempts
    attempts: int
    curve: list[tuple[int, float]]


def train(world: World, epochs: int, pause: float, paused: bool) -> Held:
    options: dict[str, Any] = {"slots": 1, "epochs": epochs, "pause": pause, "metric": {"name": "error", "mode": "min"}}
    if paused:
        search = {"method": "custom", "source": "Pausing", "trials": 2}
        number = world.submit(
            DEFINITION + PAUSING, search=search, space="lr=1e-4..1e-1:log", **options
        ).experiment.number
    else:
        number = world.submit(**options, lr=0.01).experiment.number
    until(lambda: any(t.state == "completed" for t in world.overview(number).trials), "it has ended", patience=600)
    store = SqlStore(world.home / "daylight.db")
    try:
        attempts = sorted(store.attempts(number, 1), key=lambda each: each.number)
        reports = store.validations(number)
    finally:
        store.close()
    if paused:  # its class has no more to say, and no end of its own
        Client.connect(start=False, home=world.home).stop(number)
    spans = [(each.created_at, each.ended_at or 0.0) for each in attempts]
    return Held(
        sum(ended - begun for begun, ended in spans),
        sum(after[0] - before[1] for before, after in pairwise(spans)),
        len(attempts),
        [(each.step, each.metrics["error"]) for each in reports],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--epoch-seconds", type=float, default=4.0)
    asked = parser.parse_args()
    pause = asked.epoch_seconds / STEPS
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "home", slots=1)
        world.serve()
        try:
            train(world, 1, 0.0, paused=False)  # the first one starts the forkserver
            each_s, idle_s = [], []
            for _ in range(asked.runs):
                never = train(world, asked.epochs, pause, paused=False)
                often = train(world, asked.epochs, pause, paused=True)
                assert often.curve == never.curve, "a pause has changed the training"
                pauses = often.attempts - never.attempts
                each_s.append((often.slot - never.slot) / pauses)
                idle_s.append(often.idle / pauses)
                print(
                    f"never paused {never.slot:.1f} s of a slot, paused {pauses} times {often.slot:.1f} s: "
                    f"{each_s[-1]:.2f} s each; {idle_s[-1]:.2f} s from one hold to the next; equal curves",
                    flush=True,
                )
        finally:
            world.close()
    cost = statistics.median(each_s)
    print(
        f"a pause and resume costs {cost:.2f} s of a slot: {cost / asked.epoch_seconds:.1%} of rungs of "
        f"{asked.epoch_seconds:g} s, 2 % of rungs of {cost / 0.02:.0f} s; {statistics.median(idle_s):.2f} s between"
    )


if __name__ == "__main__":
    main()
