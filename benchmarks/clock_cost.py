"""Cost of the clock that measures where a step's time goes, against a step of 10 ms.

First the calls of the clock alone that a step of the runner's loop makes, whatever the model. Second a loop by hand
with a tiny model, a DataLoader and SGD, as it is and with the timed calls of torch (backward pass, optimizer, batches):
what a job adds to a step of it. Both are timed in batches by the time of the CPU, and the fastest batch counts, as
other processes disturb it least.

    python benchmarks/clock_cost.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from kernel_backend.model.launch import times as file
from kernel_backend.runner.timing.clock import StepClock
from kernel_backend.runner.timing.intercept import install

STEP_MS = 10.0
PER_BATCH, BATCHES = 200, 100
PARTS = ("data", "transfer", "forward", "backward", "communication", "communication", "optimizer", "optimizer")


def calls(clock: StepClock) -> Callable[[], None]:
    """Return a function that makes the calls of a batch of steps."""
    blocks = [clock.part(part) for part in PARTS]  # type: ignore[arg-type]

    def steps() -> None:
        for number in range(2, PER_BATCH + 2):
            clock.phase("step", number)
            for block in blocks:
                with block:
                    pass
            clock.computed(100)

    return steps


def loop(clock: StepClock) -> Callable[[], None]:
    """Return a function that trains a tiny model for a batch of steps."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    data = DataLoader(TensorDataset(torch.ones(PER_BATCH, 4)), batch_size=1)

    def steps() -> None:
        for number, (x,) in enumerate(data, 2):
            clock.phase("step", number)
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

    return steps


def attached() -> StepClock:
    """Return a clock that runs."""
    clock = StepClock()
    clock.attach(memoryview(bytearray(file.SIZE)))
    clock.phase("step", 1)
    return clock


def seconds(steps: Callable[[], None]) -> float:
    """Return the seconds of the CPU that a batch takes."""
    begun = time.process_time()
    steps()
    return time.process_time() - begun


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    alone = calls(attached())
    own = min(seconds(alone) for _ in range(BATCHES)) / PER_BATCH * 1e6
    print(f"calls of a step: {own:.1f} us, {own / STEP_MS / 10:.3f} % of a step of {STEP_MS:g} ms")
    clock = attached()
    timed, bare = loop(clock), loop(StepClock())
    pairs = []
    for _ in range(BATCHES):
        without = seconds(bare)
        undo = install(clock)
        pairs.append((without, seconds(timed)))
        undo()
    more = (min(each[1] for each in pairs) - min(each[0] for each in pairs)) / PER_BATCH * 1e6
    print(f"a step of a loop by hand: {more:+.1f} us, {more / STEP_MS / 10:+.3f} % of a step of {STEP_MS:g} ms")


if __name__ == "__main__":
    main()
