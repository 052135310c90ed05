"""A real search of a digits CNN with 8 hyperparameters (and a conditional one) on two slots, in which everything dies.

    python -m tests.torture.searches --trials 64 --kills 40

Ranks, launchers and the service are killed at random instants. In the end every decision of the log is the one that a
searcher makes which is folded from what came before, no trial is lost, and the best trial has the bits of a training
that was never paused or killed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from kernel_backend.client import Client
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.records import Create, LogEntry, Reported
from kernel_backend.model.views.overview import Overview
from kernel_backend.search.log import apply_event, replay
from kernel_backend.search.make import make
from kernel_backend.service.search.traits import settings_of
from kernel_backend.store.sql import SqlStore
from tests.support.world import World
from tests.torture.victims import kill

EPOCHS = 16
LINE = (
    "lr=1e-4..1e-1:log weight_decay=1e-6..1e-2:log width=8,16,32 depth=1..3 kernel=3,5 dropout=0..0.5 "
    "activation=relu,gelu opt=sgd,adamw momentum=0..0.99@opt=sgd"
)
OPTIONS = {"epochs": EPOCHS, "batch_size": 32, "slots": 1, "metric": {"name": "accuracy", "mode": "max"}}
SOURCE = """
import torch
from sklearn.datasets import load_digits
from torch import nn

def digits():
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    data = torch.utils.data.TensorDataset(pixels, torch.tensor(labels))
    return torch.utils.data.random_split(data, [1200, 597], torch.Generator().manual_seed(0))
def train_data(digits):      return digits[0]
def validation_data(digits): return digits[1]
def model(width=16, depth=2, kernel=3, dropout=0.1, activation="relu"):
    layers, channels = [], 1
    for _ in range(depth):
        layers += [nn.Conv2d(channels, width, kernel, padding="same"), nn.BatchNorm2d(width)]
        layers += [nn.ReLU() if activation == "relu" else nn.GELU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(dropout), nn.Linear(4 * width, 10))
def optimizer(params, lr=1e-2, weight_decay=1e-4, opt="adamw", momentum=0.9):
    if opt == "sgd":
        return torch.optim.SGD(params, lr=lr, momentum=momentum, weight_decay=weight_decay)
    return torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay)
def loss(output, target):    return nn.functional.cross_entropy(output, target)
def metrics(output, target): return {"accuracy": (output.argmax(1) == target).float()}
"""


def logged(world: World, number: int) -> list[LogEntry]:
    """Return the search's log, read from the database."""
    store = SqlStore(world.database)
    try:
        return store.search_log(number)
    finally:
        store.close()


def holds_together(world: World, number: int) -> list[LogEntry]:
    """Return the log after checking that a searcher rebuilt from earlier entries makes each of its decisions."""
    experiment, entries = world.overview(number).experiment, logged(world, number)
    for length in range(len(entries)):
        searcher = replay(make(settings_of(experiment), experiment.space), entries[:length])
        assert apply_event(searcher, entries[length].event) == entries[length].decision, f"entry {length + 1}"
    return entries


def validations(world: World, number: int, trial: int) -> list[tuple[int, dict[str, float]]]:
    """Return a trial's validations as steps and values."""
    found: list[StoredReport] = Client.connect(start=False, home=world.home).reports(number, trial, "validation")
    return [(each.step, each.metrics) for each in found]


def same_as_alone(world: World, number: int, trial: int) -> None:
    """Assert that a trial's curve has the bits of a single training with the same hyperparameters."""
    overview = world.overview(number)
    (known,) = [each for each in overview.trials if each.index == trial]
    config = overview.experiment.config.model_copy(update={"search": None}).model_dump()
    source, _ = Client.connect(start=False, home=world.home).source(number)
    alone = world.submit(source, **{**config, **known.params}).experiment.number
    assert world.ended(alone).state == "completed"
    assert validations(world, number, trial) == validations(world, alone, 1)


def run(trials: int, kills: int, seed: int, world: World) -> str:
    """Search while processes are killed; return a sentence with the result. Raises AssertionError on a violation."""
    search = {"method": "asha", "trials": trials, "sampler": "kde"}
    number = world.submit(SOURCE, space=LINE, search=search, **OPTIONS).experiment.number
    chance, died = random.Random(seed), Counter[str]()
    began = time.monotonic()
    while not (overview := world.overview(number)).ended:
        time.sleep(chance.uniform(0.5, 4.0))
        if died.total() < kills:
            victim = chance.choice(["rank", "launcher", "service"])
            died[victim] += kill(world, number, 1, victim, chance)
    took = time.monotonic() - began
    return _told(world, number, overview, died, took)


def _told(world: World, number: int, overview: Overview, died: Counter[str], took: float) -> str:
    entries = holds_together(world, number)
    made = [each.decision.trial for each in entries if isinstance(each.decision, Create)]
    assert made == list(range(1, len(made) + 1))
    heard = [(each.event.trial, each.event.unit) for each in entries if isinstance(each.event, Reported)]
    assert len(heard) == len(set(heard))
    assert overview.experiment.state == "completed"
    front = overview.front
    assert front is not None
    same_as_alone(world, number, front.index)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(overview.counts.items()))
    units = Counter(trial for trial, _ in heard).total()
    return (
        f"{len(made)} trials ({counts}), {units} of {len(made) * EPOCHS} epochs in {took:.0f} s; died: "
        f"{dict(died)}; {len(entries)} decisions are as a replay makes them; {number}.{front.index} with accuracy "
        f"{front.metrics['accuracy']:.4f} has the bits of a training by itself"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = World(Path(folder) / "home")
        home.serve()
        try:
            print(run(asked.trials, asked.kills, asked.seed, home))
        finally:
            home.close()
