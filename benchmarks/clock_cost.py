"""Measure the cost of the clock that splits a step's time into parts, against a step of 10 ms and other profilers.

First, only the calls of the clock that a step of the runner's loop makes, whatever the model. Second, a hand-written
loop with a tiny model, a DataLoader and SGD, without the clock and with timed calls of torch (backward pass, optimizer,
batches), as in a job. Third, the same loop with the same parts measured by Lightning's `SimpleProfiler`, as Lightning's
Trainer does, and recorded by `torch.profiler`. All are timed in batches of steps by CPU time, and the fastest batch
counts, as other processes disturb it least. The loops take turns.

    python benchmarks/clock_cost.py [--batches 100]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch.profiler prints two lines for each batch

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

from kernel_backend.model.launch import times as file
from kernel_backend.runner.timing.clock import StepClock
from kernel_backend.runner.timing.intercept import install

STEP_MS = 10.0
PER_BATCH = 200  # steps
RECORDED = 10  # batches at most by torch.profiler, which takes long to begin and to end
PARTS = ("data", "transfer", "forward", "backward", "communication", "communication", "optimizer", "optimizer")
BARE, CLOCK, LIGHTNING, TORCH = "by hand", "our clock", "Lightning's SimpleProfiler", "torch.profiler"
Steps = Callable[[], None]


def calls(clock: StepClock) -> Steps:
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


class Loop:
    """Loop by hand that trains a tiny model for a batch of steps."""

    def __init__(self) -> None:
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.data = DataLoader(TensorDataset(torch.ones(PER_BATCH, 4)), batch_size=1)

    def steps(self) -> None:
        """Train, as one writes it by hand."""
        for (x,) in self.data:
            self.optimizer.zero_grad()
            self.net(x).sum().backward()
            self.optimizer.step()

    def clocked_steps(self, clock: StepClock) -> None:
        """Train, with the calls of a clock."""
        for number, (x,) in enumerate(self.data, 2):
            clock.phase("step", number)
            self.optimizer.zero_grad()
            self.net(x).sum().backward()
            self.optimizer.step()

    def measured_steps(self, part: Callable[[str], AbstractContextManager[None]]) -> None:
        """Train, with each part of a step measured by the context that `part` returns."""
        batches = iter(self.data)
        for _ in range(PER_BATCH):
            with part("data"):
                (x,) = next(batches)
            with part("optimizer_zero_grad"):
                self.optimizer.zero_grad()
            with part("forward"):
                loss = self.net(x).sum()
            with part("backward"):
                loss.backward()
            with part("optimizer_step"):
                self.optimizer.step()


def attached() -> StepClock:
    """Return a clock that runs."""
    clock = StepClock()
    clock.attach(memoryview(bytearray(file.SIZE)))
    clock.phase("step", 1)
    return clock


def contenders(loop: Loop) -> dict[str, Callable[[], AbstractContextManager[Steps]]]:
    """Return the ways to measure a batch of steps, by name; each yields the function that trains one."""
    clock = attached()

    @contextmanager
    def bare() -> Iterator[Steps]:
        yield loop.steps

    @contextmanager
    def clocked() -> Iterator[Steps]:
        undo = install(clock)
        yield lambda: loop.clocked_steps(clock)
        undo()

    @contextmanager
    def recorded() -> Iterator[Steps]:
        with profile(activities=[ProfilerActivity.CPU]):
            yield loop.steps

    found: dict[str, Callable[[], AbstractContextManager[Steps]]] = {BARE: bare, CLOCK: clocked, TORCH: recorded}
    if importlib.util.find_spec("lightning") is None:
        print(f"{LIGHTNING}: skipped, as lightning is not installed (pip install -e '.[bench]')")
        return found
    from lightning.pytorch.profilers import SimpleProfiler

    profiler = SimpleProfiler()

    @contextmanager
    def simple() -> Iterator[Steps]:
        yield lambda: loop.measured_steps(profiler.profile)

    return found | {LIGHTNING: simple}


def seconds(steps: Steps) -> float:
    """Return the seconds of the CPU that a batch takes."""
    begun = time.process_time()
    steps()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--batches", type=int, default=100, help=f"of {PER_BATCH} steps, of each loop (default: %(default)s)"
    )
    batches = parser.parse_args().batches
    torch.set_num_threads(1)
    alone = calls(attached())
    own = min(seconds(alone) for _ in range(batches)) / PER_BATCH * 1e6
    print(f"calls of a step: {own:.1f} us, {own / STEP_MS / 10:.3f} % of a step of {STEP_MS:g} ms")
    ways, fastest = contenders(Loop()), dict[str, float]()
    for nth in range(batches):
        for name, way in ways.items():
            if name == TORCH and nth % math.ceil(batches / RECORDED):
                continue
            with way() as steps:
                fastest[name] = min(fastest.get(name, float("inf")), seconds(steps))
    bare = fastest.pop(BARE)
    ours = fastest[CLOCK] - bare
    for name, each in fastest.items():
        more = (each - bare) / PER_BATCH * 1e6
        measured = min(ours, each - bare) > 0  # else both are within the noise of this machine
        ratio = f"; ours / theirs {ours / (each - bare):.2f}" if name != CLOCK and measured else ""
        print(f"a step of a loop by hand with {name}: {more:+.1f} us, {more / STEP_MS / 10:+.3f} %{ratio}")


if __name__ == "__main__":
    main()
