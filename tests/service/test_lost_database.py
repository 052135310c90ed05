"""A database that was lost, or restored from before: what its folders still hold is never taken for another's work."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend import discovery
from tests.world import World

pytestmark = pytest.mark.distributed

ONE = {"slots": 1, "backend": "torch", "epochs": 2}


def without_service(world: World) -> None:
    discovery.end(world.home)


def lose(home: Path) -> None:
    for file in home.glob("daylight.db*"):
        file.unlink()


def losses(world: World, number: int) -> list[float]:
    return [report.metrics["loss"] for report in world.reports(number) if report.kind == "training"]


def test_after_the_loss_of_the_database_nothing_of_an_older_experiment_is_taken_over(own_world):
    world = own_world
    first, other = (world.submit(lr=lr, **ONE).experiment.number for lr in (0.01, 0.5))
    for number in (first, other):
        assert world.ended(number).state == "completed"
    expected = losses(world, other)
    without_service(world)
    lose(world.home)
    world.serve()
    number = world.submit(lr=0.5, **ONE).experiment.number
    assert world.ended(number).state == "completed"
    assert losses(world, number) == expected
    assert number == 3
