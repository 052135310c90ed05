"""Measure the share of time that waits for data with `--loader-workers auto`, beside DataLoaders with fixed numbers.

Two loaders, of batches of 8 samples: one whose samples wait (for a disk or a network), and one whose samples compute.
A step computes for 30 ms. The plain loop is run with `num_workers=0`, the default, and with several other numbers, of
which the best is printed. Daylight also begins without workers and tunes the number: the shares of its first and last
steps are printed, and its note on the number.

    python benchmarks/loader_auto.py [--steps 120]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import ours
from torch import nn
from torch.utils.data import DataLoader, Dataset

from kernel_backend.model.views.slowness import percent
from kernel_backend.runner.loop import loop
from kernel_backend.runner.timing.clock import CLOCK

BATCH, SAMPLES, STEP_S = 8, 4096, 0.03
NUMBERS = (0, 1, 2, 4, 8, 16)
LOADERS = {"waits for 20 ms": "time.sleep(0.02)", "computes for 10 ms": "busy(0.01)"}
SOURCE = """
from loader_auto import Rows, compute
from torch import nn
from torch.utils.data import DataLoader
def train_data(load=""): return DataLoader(Rows(load), batch_size=8)
def model(): return nn.Linear(8, 1)
def optimizer(params):
    import torch
    return torch.optim.SGD(params, lr=1e-3)
def loss(output, target):
    compute()
    return nn.functional.mse_loss(output, target)
"""


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Dataset whose samples take a while to load."""

    def __init__(self, load: str) -> None:
        self.load = load

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        exec(self.load, {"time": time, "busy": busy})
        return torch.full((8,), index / SAMPLES), torch.zeros(1)


def busy(seconds: float) -> None:
    """Compute for so many seconds of the CPU."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass


def compute() -> None:
    """Wait as a process waits for a GPU to compute a step."""
    time.sleep(STEP_S)


def plain(load: str, workers: int, steps: int) -> float:
    """Return the share of the time that a loop by hand waits for its DataLoader."""
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    batches = iter(DataLoader(Rows(load), batch_size=BATCH, num_workers=workers))
    for _ in range(2 * workers + 1):
        next(batches)
    waited, begun = 0.0, time.monotonic()
    for _ in range(steps):
        asked = time.monotonic()
        x, y = next(batches)
        waited += time.monotonic() - asked
        compute()
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return waited / (time.monotonic() - begun)


def tuned(load: str, steps: int) -> tuple[float, float, list[str]]:
    """Return the shares of Daylight's first and last steps, and the notes that it wrote."""
    notes: list[str] = []
    shares: list[tuple[float, float]] = []
    training = ours.build(
        Path(tempfile.mkdtemp()), SOURCE, {"load": load}, steps=6 * steps, epochs=1, checkpoint_every=ours.NEVER
    )
    training.spool.say = noting(training.spool.say, notes)  # type: ignore[method-assign]
    CLOCK.attach(training.progress.times())
    training.progress.tick = watching(training.progress.tick, shares)  # type: ignore[method-assign]
    try:
        loop.train(training)
    finally:
        CLOCK.detach()
        training.train.close()
    return _share(shares[:8]), _share(shares[-steps:]), notes


def noting(say: Callable[..., None], notes: list[str]) -> Callable[..., None]:
    """Return a function that writes a note and also appends its text to a list."""

    def saying(record: object) -> None:
        notes.extend([record.text] if hasattr(record, "text") else [])
        say(record)

    return saying


def watching(tick: Callable[..., None], shares: list[tuple[float, float]]) -> Callable[..., None]:
    """Return a function that calls `tick`, and at each step also appends the clock's pair of times to `shares`."""

    def ticking(phase: str, number: int) -> None:
        tick(phase, number)
        if (passed := CLOCK.passed()) is not None:
            shares.append(passed)

    return ticking


def _share(shares: list[tuple[float, float]]) -> float:
    (begun, before), (ended, after) = shares[0], shares[-1]
    return (after - before) / (ended - begun)


def main() -> None:
    """Print the shares of both loaders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120, help="steps of each measurement (default: %(default)s)")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    for name, load in LOADERS.items():
        fixed = {workers: plain(load, workers, steps) for workers in NUMBERS}
        best = min(fixed, key=lambda workers: fixed[workers])
        first, last, notes = tuned(load, steps)
        print(
            f"a sample {name}: plain DataLoader {percent(fixed[0])}, best fixed number {best}: {percent(fixed[best])}"
        )
        print(f"  auto {percent(first)} -> {percent(last)}; {'; '.join(notes) or 'no note'}", flush=True)


if __name__ == "__main__":
    main()
