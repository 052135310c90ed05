"""Twelve causes of lost time are put into trainings and must be named; twenty healthy ones must have no sentence.

    python -m tests.torture.slowness [--healthy 20]

On a machine that other programs use, a healthy training may truly wait, and a small model be slow for another reason:
run it alone. Each training takes ten to twenty seconds.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.model.experiment import parse_cadence
from tests.support.slow_trainings import SLOW_DISK, SLOW_LOADER, SLOW_RANK
from tests.support.world import World


class Case(NamedTuple):
    """Training with a known cause, and the beginning of the expected sentence ("" for a healthy training)."""

    name: str
    source: str
    expected: str
    options: dict[str, Any]


_HEAD = """
import os
import time
import torch
from torch import nn
"""
_OWN_LOOP = (
    _HEAD
    + """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, index):
        time.sleep({read})
        return torch.full((8,), float(index)), torch.zeros(1)
def data(): return Rows()
def train(run, data):
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    run.restore(net=net, optimizer=optimizer)
    for epoch in run.epochs({epochs}):
        for x, y in torch.utils.data.DataLoader(data, batch_size=8):
            loss = nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep({compute})
"""
)
_STREAM = (
    _HEAD
    + """
def train_data():
    class Numbers(torch.utils.data.IterableDataset):
        def __iter__(self):
            for index in range(480):
                time.sleep(0.02)
                yield torch.full((8,), float(index)), torch.zeros(1)
    return Numbers()
def model(): return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
def optimizer(params): return torch.optim.AdamW(params, lr=1e-3)
def loss(output, target):
    time.sleep(0.03)
    return nn.functional.mse_loss(output, target)
"""
)
_SLOW_READER = SLOW_LOADER.replace("time.sleep(0.02)", 'time.sleep(0.04 if os.environ["RANK"] == "1" else 0.004)')
# Much to sum and little to compute: 16 million parameters, of which a step uses a few rows.
_MUCH_TO_SUM = (
    _HEAD
    + """
def train_data(): return torch.utils.data.TensorDataset(torch.arange(640) % 100, torch.zeros(640, 160))
def model(): return nn.Embedding(100_000, 160)
def optimizer(params): return torch.optim.SGD(params, lr=1e-3)
def loss(output, target): return nn.functional.mse_loss(output, target)
"""
)
_SMALL = (
    _HEAD
    + """
def train_data(): return torch.utils.data.TensorDataset(torch.randn(4000, 4), torch.zeros(4000, 1))
def model(depth=12):
    return nn.Sequential(*[each for _ in range(depth) for each in (nn.Linear(4, 4), nn.Tanh())], nn.Linear(4, 1))
def optimizer(params): return torch.optim.AdamW(params, lr=1e-3)
def loss(output, target): return nn.functional.mse_loss(output, target)
"""
)
_VALIDATES = (
    SLOW_LOADER.replace("time.sleep(0.02)", "")
    + "\ndef validation_data(): return torch.utils.data.Subset(Rows(), range(64))\n"
    + "def metrics(output, target):\n    time.sleep(0.1)\n    return {}\n"
)
_HEALTHY = (
    _HEAD
    + """
def dataset(seed=0):
    x = torch.randn(1024, 256, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
def train_data(dataset): return dataset
def validation_data(dataset): return torch.utils.data.Subset(dataset, range(64))
def model(width=768):
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
def optimizer(params): return torch.optim.AdamW(params, lr=1e-3)
def loss(output, target): return nn.functional.mse_loss(output, target)
"""
)
_OFTEN = {"checkpoint_every": parse_cadence("4steps")}
CAUSES = (
    Case("loader", SLOW_LOADER, "of each step waits for data: --loader-workers", {"loader_workers": 0}),
    Case(
        "loader, too few processes",
        SLOW_LOADER,
        "waits for data: --loader-workers",
        {"loader_workers": 2, "steps": 160},
    ),
    Case(
        "loader of an own loop", _OWN_LOOP.format(read=0.02, compute=0.03, epochs=24), "num_workers=", {"steps": None}
    ),
    Case("stream", _STREAM, "of each step waits for data: ", {"loader_workers": 0}),
    Case("rank", SLOW_RANK, "^rank 1 is .* mostly in forward", {"slots": 2}),
    Case(
        "rank that reads slowly",
        _SLOW_READER,
        "^rank 1 is .* mostly in waiting for data",
        {"slots": 2, "loader_workers": 0},
    ),
    Case("disk", SLOW_DISK, "^checkpoints take .* the store writes ", _OFTEN),
    Case("disk of two ranks", SLOW_DISK, "^checkpoints take .* the store writes ", {**_OFTEN, "slots": 2}),
    Case("network", _MUCH_TO_SUM, "^2 slots bring .* averaging gradients takes ", {"slots": 2, "steps": 150}),
    Case("small model", _SMALL, "^the model is so small that Python takes ", {"steps": 3000}),
    Case("small deep model", _SMALL, "^the model is so small that Python takes ", {"steps": 1200, "depth": 40}),
    Case("validation", _VALIDATES, "^validation takes ", {"steps": 160}),
)


def healthy(number: int) -> Case:
    """Return a healthy training; they differ in seed, width, length and slots."""
    options = {"seed": number, "width": 640 + 64 * (number % 5), "steps": 700, "batch_size": 128}
    return Case(f"healthy {number}", _HEALTHY, "", options)


def sentence(world: World, case: Case) -> str:
    """Train, and return the sentence about the whole run."""
    options = {"slots": 1, "steps": 60, "contract": CONTRACT, **case.options}
    if options["steps"] is None:
        del options["steps"]
    number = world.submit(case.source, name=case.name, **options).experiment.number
    ended = world.ended(number)
    if ended.state != "completed":
        raise AssertionError(f"{case.name}: {ended.state}: {[each.failure for each in ended.trials]}")
    times = Client.connect(start=False, home=world.home).times(number)
    shares = {part: f"{100 * times.whole.share(part):.0f}" for part in times.whole.parts}
    print(f"{case.name}: {times.sentence or '-'}   {shares}", flush=True)
    return times.sentence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "home")
        world.serve()
        try:
            named = [bool(re.search(case.expected, sentence(world, case))) for case in CAUSES]
            silent = [sentence(world, healthy(number)) == "" for number in range(asked.healthy)]
        finally:
            world.close()
    print(f"named {sum(named)} of {len(named)}, silent {sum(silent)} of {len(silent)}")
    if not all([*named, *silent]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
