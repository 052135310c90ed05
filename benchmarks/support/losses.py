"""Measure the time from a loss on two nodes to the next step of a training, for the engines of clusters."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import psutil

from kernel_backend.model.reports import Report
from tests.support.spools import read_after
from tests.support.world import World, until

OPTIONS: dict[str, Any] = {
    "pool": "cluster",
    "slots": 2,
    "backend": "torch",
    "epochs": 400,
    "checkpoint_every": {"steps": 4},
}
PATIENCE_S = 300.0

Lose = Callable[[psutil.Process, str], None]  # loses something, given the rank and the node that may be lost


def resumed(world: World, lose: Lose) -> tuple[float, str]:
    """Return the seconds from a loss to the first step of the next attempt, and the node whose rank was lost."""
    number = world.lasting(pause=0.05, **OPTIONS)
    world.checkpointed(number)
    node = world.overview(number).attempts[-1].nodes[1].name
    ranks = until(lambda: len(found := world.ranks()) == 2 and found, "both ranks are known")
    lost = time.time()
    lose(ranks[1], node)

    spool = world.home / "attempts" / f"{number}.1-2" / "spool.jsonl"

    def first_step() -> float | None:
        records = read_after(spool, 0) if spool.exists() else []
        return next((record.at for record in records if isinstance(record, Report)), None)

    seconds = until(first_step, "the next attempt takes a step", PATIENCE_S) - lost
    world.serve().stop(number)
    world.ended(number, PATIENCE_S)
    return seconds, node


def runs(description: str) -> int:
    """Return the command line's number of measurements of each loss."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=5)
    asked: int = parser.parse_args().runs
    return asked


def report(count: int, again: Callable[[str], float]) -> None:
    """Measure the loss of a rank and of a node in turns, and print the medians; `again` measures one."""
    found: dict[str, list[float]] = {"rank": [], "node": []}
    for _ in range(count):
        for victim, seconds in found.items():
            seconds.append(again(victim))
            print(f"{victim}: {seconds[-1]:.1f} s", flush=True)
    for victim, seconds in found.items():
        print(f"loss of a {victim}: {statistics.median(seconds):.1f} s to the next step (median of {count})")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
