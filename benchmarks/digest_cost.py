"""Measure the cost of sample digests, as a share of a step of the first epoch.

Digests of the first epoch's samples show whether two trainings got the same data. One training by the runner's own loop
computes them in every other step; neighbouring steps are compared, so that other load on the machine affects both. A
step lasts from the arrival of one batch to that of the next. Also printed is the time that the digests of one batch
take by themselves, in the rank or in a loader worker; on a busy machine it varies less.

    python benchmarks/digest_cost.py
    python benchmarks/digest_cost.py --pairs 40 --case workers
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import ours

from kernel_backend.runner import first_epoch
from kernel_backend.runner.data.sample_digest import are_rows, see, see_rows
from kernel_backend.runner.loop import loop

BATCH_SIZE = 32
WARM_UP = 32
WORK = """
import torch
from torch import nn

POOL = 256  # images; the epoch goes through them so often that it does not end
EPOCH = 400_000

class Images(torch.utils.data.Dataset):
    def __init__(self, side, kind):
        self.pool = torch.randint(0, 256, (POOL, 3, side, side), dtype=torch.uint8)
        self.kind = getattr(torch, kind)
    def __len__(self): return EPOCH
    def __getitem__(self, index):
        image = self.pool[index % POOL]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image.to(self.kind), index % 10

def train_data(side=32, kind="float32", source="samples"):
    images = Images(side, kind)
    if source == "samples":
        return images
    ready = torch.utils.data.TensorDataset(images.pool.to(images.kind), torch.arange(POOL) % 10)
    if source == "tensors":
        return torch.utils.data.Subset(ready, [index % POOL for index in range(EPOCH)])
    return [ready[index % POOL] for index in range(EPOCH)]

class Net(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, stride=stride)
        self.body = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(2 * width, 10),
        )
    def forward(self, x): return self.body(self.stem(x.float() / 255))

def model(width=8, stride=1): return Net(width, stride)
def optimizer(params): return torch.optim.SGD(params, lr=1e-4)
def loss(output, target): return nn.functional.cross_entropy(output, target)
"""
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "3x32x32 float32, TensorDataset, short steps": ({"source": "tensors", "width": 8}, 0),
    "3x32x32 float32, TensorDataset, long steps": ({"source": "tensors", "width": 24}, 0),
    "3x32x32 float32, list of tensors, short steps": ({"source": "list", "width": 8}, 0),
    "3x32x32 float32, 2 loader workers, short steps": ({"width": 8}, 2),
    "3x32x32 float32, 2 loader workers, long steps": ({"width": 24}, 2),
    "3x224x224 uint8, 2 loader workers": ({"side": 224, "kind": "uint8", "width": 12, "stride": 4}, 2),
    "3x224x224 float32, 2 loader workers": ({"side": 224, "width": 12, "stride": 4}, 2),
}


def paired(params: dict[str, Any], workers: int, pairs: int) -> tuple[float, float]:
    """Return the median ratio of step times (with digests / without), and the least step time without, in seconds.

    Pairs of neighbouring steps are compared. If workers load batches ahead, pairs of blocks of steps are compared
    instead, without the first steps of each block, whose batches were loaded during the block before.
    """
    block, left_out = (16, 6) if workers else (1, 0)
    steps = WARM_UP + 2 * pairs * block
    folder = Path(tempfile.mkdtemp())
    options = {"batch_size": BATCH_SIZE, "steps": steps, "checkpoint_every": ours.NEVER, "loader_workers": workers}
    first_epoch.watch_files(ours.a_job(folder, WORK, params))
    training = ours.build(folder, WORK, params, **options)
    data: Any = training.train._data
    planned = data._planned
    data._planned = lambda first, until: (
        step._replace(digested=bool(number // block % 2)) for number, step in enumerate(planned(first, until))
    )
    times: list[float] = []
    training.progress = ours._Telling(training, lambda: times.append(time.perf_counter()))
    loop.train(training)
    training.train.close()
    took = [after - before for before, after in pairwise(times)]  # the n-th has the reading of batch n + 1 in it
    blocks = [took[begin + left_out - 1 : begin + block - 1] for begin in range(WARM_UP, steps, block)]
    means = [statistics.median(each) for each in blocks]
    ratios = [digested / plain for plain, digested in zip(means[::2], means[1::2], strict=True)]
    return statistics.median(ratios), min(map(min, blocks[::2]))


def alone(params: dict[str, Any]) -> float:
    """Return the least seconds that the digests of one batch take."""
    made: dict[str, Any] = {}
    exec(WORK, made)
    data = made["train_data"](**{name: value for name, value in params.items() if name in ("side", "kind", "source")})
    samples = [data[index] for index in range(BATCH_SIZE)]
    rows = [torch.stack([sample[0] for sample in samples]), torch.tensor([int(sample[1]) for sample in samples])]
    ways: dict[str, Callable[[], object]] = {
        "samples": lambda: see(samples),
        "tensors": lambda: see_rows(rows),
        "list": lambda: are_rows(samples) and see_rows(rows),
    }
    digest = ways[params.get("source", "samples")]
    took = []
    for _ in range(200):
        began = time.perf_counter()
        digest()
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pairs", type=int, default=300, help="of steps, or of blocks times ten (default: %(default)s)"
    )
    parser.add_argument("--case", help="only those whose name contains it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, (params, workers) in CASES.items():
        if args.case and args.case not in name:
            continue
        ratio, best = paired(params, workers, args.pairs // 10 if workers else args.pairs)
        digests = alone(params)
        print(
            f"{name}: {best * 1e3:.2f} ms a step at best; with digests {100 * (ratio - 1):+.2f} %; digests alone "
            f"{digests * 1e6:.0f} us, {100 * digests / best:.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
