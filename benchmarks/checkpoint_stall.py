"""Measure the stall of training at a checkpoint of 400 MB, against torch.save with fsync and dcp.async_save.

The state is a model of 33 million parameters and its AdamW. One training is saved in turn by each contender: in every
round each has a cycle of steps that begins with a checkpoint, and one cycle has no checkpoint. The cost of a checkpoint
is the time that a cycle takes longer than that one; `blocked` is the part of it that the training thread spends in the
contender's own code. PyTorch's asynchronous saving is measured twice: as its documentation calls it, and at its best,
staged by a thread into buffers that are reused, and which is joined before the next update.

At the end checkpoints of a small model, one a step, are read back from the disk and compared with the state of the
training at the moment at which they were taken.

    python benchmarks/checkpoint_stall.py            400 MB, steps of about a second
    python benchmarks/checkpoint_stall.py --quick    100 MB, steps of about 0.1 s
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import ours
from contenders.round_robin import ratio
from contenders.savers import AsyncSave, AsyncStaging, Daylight, Nobody, Timed, TorchSave, Way

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.checkpoints.writer import decode, flatten
from kernel_backend.runner.loop import loop
from kernel_backend.runner.loop.training import Training

SOURCE = """
import torch
from torch import nn

def train_data(width=2880): return torch.utils.data.TensorDataset(torch.randn(2048, width), torch.randn(2048, width))
def model(width=2880):      return nn.Sequential(*[nn.Linear(width, width) for _ in range(4)])
def optimizer(params):      return torch.optim.AdamW(params, lr=1e-5)
def loss(output, target):   return nn.functional.mse_loss(output, target)
"""
INTERVAL = 30  # steps between checkpoints, of the throughput that is lost


def steps(run: Training) -> Iterator[None]:
    """Yield the steps of an endless training, one at a time."""
    for batch in loop.batches(run):
        loop.take_step(run, batch)
        run.step += 1
        yield


class Cycle(NamedTuple):
    """Seconds that a few steps took, with a checkpoint before the first: in all, and blocked by the checkpoint."""

    whole: float
    blocked: float
    after: float  # how long the disk was still busy


def cycle(run: Training, taken: Iterator[None], way: Way, count: int) -> Cycle:
    """Save a checkpoint, then train that many steps; return the times."""
    timed = Timed(way)
    run.checkpoints = timed  # type: ignore[assignment]
    began = time.perf_counter()
    timed.save(loop.moment(run))
    for _ in range(count):
        next(taken)
    if run.device.type == "cuda":
        torch.cuda.synchronize()
    ended = time.perf_counter()
    way.wait()
    return Cycle(ended - began, timed.blocked, time.perf_counter() - ended)


def measure(width: int, batch: int, threads: int, count: int, rounds: int, folder: Path) -> None:
    """Print the stall that each contender's checkpoint causes."""
    run = ours.build(
        folder / "training",
        SOURCE,
        {"width": width},
        batch_size=batch,
        threads=threads,
        steps=ours.FOR_EVER,
        checkpoint_every=ours.NEVER,
    )
    ways: dict[str, Way] = {
        "no checkpoint": Nobody(run, folder),
        "Daylight": Daylight(run.checkpoints),
        "torch.save + fsync": TorchSave(run, folder / "save"),
        "dcp.async_save": AsyncSave(run, folder / "async"),
        "dcp.async_save, staged by a thread": AsyncStaging(run, folder / "staging"),
    }
    taken = steps(run)
    for way in ways.values():  # the first checkpoint gets its memory
        cycle(run, taken, way, 2)
    found: dict[str, list[Cycle]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(cycle(run, taken, ways[name], count))
    size = sum(each.nbytes for those in tensors(run).values() for each in those.values())
    table(found, count, size, threads)


def table(found: dict[str, list[Cycle]], count: int, size: int, threads: int) -> None:
    """Print the medians, and Daylight's ratios to the others."""
    plain = [each.whole for each in found.pop("no checkpoint")]
    step = statistics.median(plain) / count
    print(f"\n{size / 1e6:.0f} MB, steps of {step:.2f} s by {threads} threads, {len(plain)} cycles of {count} steps")
    print(f"  {'':36}{'blocked':>9}{'of a step':>11}{'longer':>9}{f'lost, 1 in {INTERVAL}':>15}{'disk after':>12}")
    for name, each in found.items():
        blocked = statistics.median(one.blocked for one in each)
        longer = statistics.median(one.whole - other for one, other in zip(each, plain, strict=True))
        after = statistics.median(one.after for one in each)
        print(
            f"  {name:36}{blocked * 1e3:6.0f} ms{blocked / step:11.2%}{longer * 1e3:6.0f} ms"
            f"{longer / (INTERVAL * step):15.2%}{after:10.1f} s"
        )
    blocked_by = {name: [one.blocked for one in each] for name, each in found.items()}
    mine = blocked_by.pop("Daylight")
    against = ", ".join(f"{ratio(mine, theirs):.4f} x {name}" for name, theirs in blocked_by.items())
    print(f"  blocked by Daylight: {against}", flush=True)


def tensors(run: Training) -> dict[str, dict[str, torch.Tensor]]:
    """Return every tensor of the model and the optimizer, not copied."""
    parts = {"model": run.model.state_dict(), "optimizer": run.objectives[0].optimizers[""].state_dict()}
    return {name: flatten(state)[1] for name, state in parts.items()}


def compare(count: int, folder: Path) -> None:
    """Print how many checkpoints equal the state of the training at the moment of the save."""
    run = ours.build(folder, SOURCE, {"width": 512}, steps=ours.FOR_EVER, checkpoint_every=ours.NEVER)
    home = open_storage(str(folder / "checkpoints"))
    way, taken, equal = Daylight(run.checkpoints), steps(run), 0
    next(taken)
    for _ in range(count):
        live = {part: {name: each.clone() for name, each in those.items()} for part, those in tensors(run).items()}
        run.checkpoints.save(loop.moment(run))
        next(taken)
        way.wait()
        newest = home.committed()[-1]
        saved = {part: decode(home.read(newest, part)) for part in live}
        equal += all(torch.equal(saved[part][name], each) for part in live for name, each in live[part].items())
    print(f"\n{equal} of {count} checkpoints equal the state that they were taken of")


def main() -> None:
    """Measure the stalls, then compare the checkpoints with the live state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="paired rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps of a cycle (default: %(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="CPU threads of the training (default: 1)")
    parser.add_argument("--copies", type=int, default=60, help="checkpoints that are compared (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="100 MB and few rounds: a look, not a figure")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process is what is meant
    with tempfile.TemporaryDirectory() as name:
        for threads in args.threads:
            width, batch, rounds = (1440, 128, 3) if args.quick else (2880, 384 * threads, args.rounds)
            measure(width, batch, threads, args.steps, rounds, Path(name))
        compare(6 if args.quick else args.copies, Path(name) / "small")


if __name__ == "__main__":
    main()
