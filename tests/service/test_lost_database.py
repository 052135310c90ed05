"""Test a lost or restored database: files in its folders are never taken for another experiment's work."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.backup import back_up, restore
from tests.support.world import World, until

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


def test_yesterdays_backup_over_newer_folders_goes_on_with_what_is_its_own(own_world):
    world = own_world
    number = world.lasting(**ONE, checkpoint_every={"steps": 2})
    world.checkpointed(number)
    client = world.serve()
    client.pause(number)
    until(lambda: world.overview(number).trials[0].state == "paused", "the trial pauses")
    back_up(world.home, world.home / "yesterday.db")
    world.hurry(number)
    client.resume(number)
    assert world.ended(number).trials[0].attempt == 2
    weights, told = world.weights(number), losses(world, number)
    lost = world.submit(lr=0.5, **ONE).experiment.number
    assert world.ended(lost).state == "completed"
    without_service(world)
    restore(world.home, world.home / "yesterday.db")

    client = world.serve()
    (note,) = client.health()["notes"]
    assert note.startswith(f"the database is older than its folders: its newest experiment is #{number}")
    client.resume(number)
    overview = world.ended(number)
    assert (overview.state, overview.attempts[-1].number) == ("completed", 3)
    assert overview.attempts[-1].resume_from.endswith("-2")
    assert any("of an attempt that this database does not know" in each for each in overview.warnings)
    assert world.weights(number) == weights
    assert set(losses(world, number)) < set(told)
    assert world.submit(lr=0.01, **ONE).experiment.number == lost + 1
