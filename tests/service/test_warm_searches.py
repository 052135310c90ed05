"""Test searches that start from results of earlier experiments, or from the weights of a trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from kernel_backend.errors import InvalidRequest, NotFound
from kernel_backend.model.search.records import Create, LogEntry, Reported
from kernel_backend.search.log import apply_event, replay
from kernel_backend.search.make import make
from kernel_backend.search.settings import settings_of
from kernel_backend.store.sql import SqlStore
from tests.support.world import World

pytestmark = pytest.mark.distributed

# What is best is known: lr = 1e-2. It is all that the error says.
KNOWN = """
import math
import torch
from torch import nn

def train_data():      return torch.utils.data.TensorDataset(torch.ones(8, 1), torch.ones(8, 1))
def validation_data(): return train_data()
def model(width=4):    return nn.Sequential(nn.Linear(1, width), nn.Linear(width, 1))
def optimizer(params, lr=1e-2): return torch.optim.SGD(params, 1e-3)
def loss(output, target): return nn.functional.mse_loss(output, target)
def metrics(output, target, lr): return {"error": torch.full((len(target),), abs(math.log10(lr) + 2))}
"""
LINE = "lr=1e-4..1:log"
OPTIONS: dict[str, Any] = {"slots": 1, "epochs": 1, "metric": {"name": "error", "mode": "min"}}


def submit(world: World, **options: Any) -> int:
    return world.submit(KNOWN, **{"space": LINE, **OPTIONS, **options}).experiment.number


@pytest.fixture(scope="module")
def earlier(world: World) -> int:
    """Provide a search with 8 random points of one epoch each."""
    number = submit(world, search={"method": "sobol", "trials": 8})
    assert world.ended(number).experiment.state == "completed"
    return number


def test_a_search_that_knows_an_earlier_one_begins_with_better_trials(world: World, earlier: int) -> None:
    asked = {"method": "asha", "trials": 4, "parallel": 1}
    number = submit(world, epochs=2, seed=1, search={**asked, "warm": [str(earlier)]})
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    entries = log(world, number)
    known = [entry for entry in entries if entry.trial is not None and entry.trial < 1]
    assert sum(isinstance(entry.event, Reported) for entry in known) == 8
    assert entries[: len(known)] == known
    for length in range(len(entries)):
        search = replay(make(settings_of(overview.experiment.config), overview.experiment.space), entries[:length])
        assert apply_event(search, entries[length].event) == entries[length].decision
    cold = make(settings_of(overview.experiment.config), overview.experiment.space)
    assert distance([entry.decision for entry in entries]) < distance([cold.on_slot() for _ in range(4)])


def log(world: World, number: int) -> list[LogEntry]:
    store = SqlStore(world.home / "daylight.db")
    try:
        return store.search_log(number)
    finally:
        store.close()


def distance(decisions: Sequence[Any]) -> float:
    """Return the mean distance of new trials from the best learning rate, in powers of ten."""
    rates = [each.params["lr"] for each in decisions if isinstance(each, Create)]
    return sum(abs(math.log10(lr) + 2) for lr in rates) / len(rates)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metric": {"name": "erorr", "mode": "min"}}, r"no such metric \(did you mean error\?\), only loss error"),
        ({"epochs": 1, "steps": 4}, "counts epochs, and --steps is given"),
        ({"space": "lr=10..20"}, "no trial of experiment #[0-9]+ has all of lr within what is searched here"),
        ({"space": "width=8..16"}, "no trial of .* has all of width"),
    ],
)
def test_what_it_could_learn_nothing_from_is_refused(
    world: World, earlier: int, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        submit(world, search={"method": "tpe", "trials": 2, "warm": [str(earlier)]}, **options)


def test_an_experiment_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound, match="#999"):
        submit(world, search={"method": "tpe", "trials": 2, "warm": ["999"]})


def test_trials_begin_with_the_best_weights_of_an_earlier_one(world: World) -> None:
    options: dict[str, Any] = {"slots": 1, "epochs": 2, "metric": {"name": "error", "mode": "min"}}
    first = world.submit(**options, dropout=0.0).experiment.number
    assert world.ended(first).experiment.state == "completed"
    search = {"method": "random", "trials": 2, "warm": [f"{first}.1"]}
    number = world.submit(space="lr=1e-9..2e-9", search=search, **options, dropout=0.0).experiment.number
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    assert overview.experiment.begins_from is not None
    assert overview.experiment.begins_from.startswith(f"{first}.1/")
    assert overview.experiment.begins_from.endswith(":weights")
    best = min(each.metrics["error"] for each in world.reports(first) if each.kind == "validation")
    # They learn nothing, and so are as good as what they began with, but for the statistics of another epoch.
    assert [trial.step for trial in overview.trials] == [16, 16]
    assert [trial.metrics["error"] for trial in overview.trials] == pytest.approx([best] * 2, rel=0.15)


@pytest.mark.parametrize(
    ("warm", "said"),
    [
        (["{earlier}.99"], "no trial"),
        (["{earlier}.1", "{earlier}.2"], "begins with the weights of one other: leave one of them out"),
    ],
)
def test_weights_that_cannot_be_had_are_refused(world: World, earlier: int, warm: list[str], said: str) -> None:
    named = [each.format(earlier=earlier) for each in warm]
    with pytest.raises((InvalidRequest, NotFound), match=said):
        submit(world, search={"method": "random", "trials": 2, "warm": named})
