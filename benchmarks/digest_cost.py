"""What digests of the samples and the watch over opened files cost: the share of a step of the first epoch.

The same training by the runner's own loop twice, with both and with neither, in processes that take turns; a step is
everything from one batch in hand to the next. Beside it stands what the digests of one batch take by themselves, in
the rank or in a loader worker, as a share of the best step: on a busy machine that figure is the steadier one.

    python benchmarks/digest_cost.py
    python benchmarks/digest_cost.py --quick
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import ours
from contenders.turns import Contender, contest, ratio

from kernel_backend.runner import first_epoch, loop
from kernel_backend.runner.data.seen import see, see_rows

BATCH_SIZE = 32
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
    "3x32x32 float32, TensorDataset, long steps": ({"source": "tensors", "width": 40}, 0),
    "3x32x32 float32, list of tensors, short steps": ({"source": "list", "width": 8}, 0),
    "3x32x32 float32, 2 loader workers, short steps": ({"width": 8}, 2),
    "3x32x32 float32, 2 loader workers, long steps": ({"width": 40}, 2),
    "3x224x224 uint8, 2 loader workers": ({"side": 224, "kind": "uint8", "width": 12, "stride": 4}, 2),
    "3x224x224 float32, 2 loader workers": ({"side": 224, "width": 12, "stride": 4}, 2),
}


def train(step: Any, params: dict[str, Any], workers: int, digested: bool) -> None:
    """Train for ever, within the first epoch."""
    folder = Path(tempfile.mkdtemp())
    options = {"batch_size": BATCH_SIZE, "steps": ours.FOR_EVER, "checkpoint_every": ours.NEVER}
    if digested:
        first_epoch.watch_files(ours.a_job(folder, WORK, params))
    training = ours.build(folder, WORK, params, loader_workers=workers, **options)
    training.train._data._digested = digested  # type: ignore[union-attr]
    training.progress = ours._Telling(training, step)
    loop.train(training)


def alone(params: dict[str, Any]) -> float:
    """Seconds that the digests of one batch take, at best."""
    made: dict[str, Any] = {}
    exec(WORK, made)
    data = made["train_data"](**{name: value for name, value in params.items() if name in ("side", "kind", "source")})
    samples = [data[index] for index in range(BATCH_SIZE)]
    rows = [torch.stack([sample[0] for sample in samples]), torch.tensor([int(sample[1]) for sample in samples])]
    digest = (lambda: see_rows(rows)) if params.get("source") == "tensors" else (lambda: see(samples))
    took = []
    for _ in range(200):
        began = time.perf_counter()
        digest()
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="paired rounds (default: %(default)s)")
    parser.add_argument("--case", help="only those whose name contains it")
    parser.add_argument("--quick", action="store_true", help="few rounds: a look, not a figure")
    args = parser.parse_args()
    for name, (params, workers) in CASES.items():
        if args.case and args.case not in name:
            continue
        long = "long" in name or "224" in name
        rounds, steps = (4 if args.quick else args.rounds), (12 if long else 60)
        pair = {said: Contender(train, (params, workers, said == "with")) for said in ("with", "without")}
        times = contest(pair, rounds, steps)
        best, digests = min(times["without"]), alone(params)
        share = 100 * (ratio(times["with"], times["without"]) - 1)
        print(
            f"{name}: {best * 1e3:.2f} ms a step at best; with both {share:+.2f} % ({rounds} rounds); digests alone "
            f"{digests * 1e6:.0f} us, {100 * digests / best:.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
