"""Test that the facts of a trial's data and weights reach the API, through real processes."""

from __future__ import annotations

import pytest

from kernel_backend.client import Client
from kernel_backend.model.facts import Delivered, Observed, Weights, known
from tests.support.world import LASTING, World

pytestmark = pytest.mark.distributed


def facts(world: World, number: int):
    """Return the provenance records by name, as the newest attempt reported them."""
    return known(Client.connect(start=False, home=world.home).facts(number))


def test_two_trainings_of_the_same_snapshot_are_given_the_same(world):
    one, other = (world.submit(epochs=2, slots=slots).experiment.number for slots in (1, 2))
    assert [world.ended(number).state for number in (one, other)] == ["completed", "completed"]
    first, second = facts(world, one), facts(world, other)
    assert set(first) == {"runtime", "delivered", "weights", "observed"}
    delivered = Delivered.model_validate(first["delivered"])
    assert delivered.whole
    assert delivered.samples > 0
    assert second["delivered"] == first["delivered"]
    assert second["weights"] == first["weights"]
    assert len(Weights.model_validate(first["weights"]).tensors) > 1
    assert Observed.model_validate(first["observed"]).files == ()


def test_another_seed_begins_with_other_weights(world):
    one, other = (world.submit(epochs=1, slots=1, seed=seed).experiment.number for seed in (0, 1))
    for number in (one, other):
        world.ended(number)
    assert facts(world, one)["weights"]["digest"] != facts(world, other)["weights"]["digest"]


@pytest.mark.long
def test_a_kill_within_the_first_epoch_changes_nothing_of_it(world):
    options = {"epochs": 1, "checkpoint_every": {"steps": 2}}
    quiet = world.submit(LASTING, **options).experiment.number
    assert world.ended(quiet).state == "completed"
    killed = world.lasting(**options, pause=2.0, backend="torch")
    world.checkpointed(killed)
    world.ranks()[0].kill()
    world.hurry(killed, attempt=2)
    assert world.ended(killed).trials[0].attempt == 2
    assert facts(world, killed)["delivered"] == facts(world, quiet)["delivered"]
