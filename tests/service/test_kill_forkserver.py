"""Test attempts with forked ranks: a restart without imports, and the death of the forkserver."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.world import World

pytestmark = pytest.mark.distributed

OPTIONS = {"epochs": 4, "checkpoint_every": {"steps": 4}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("forkserver") / "home")
    made.serve()
    yield made
    made.close()


@pytest.fixture(scope="module")
def quiet(world: World) -> dict[str, str]:
    """Provide the weights of an undisturbed run."""
    number = world.submit(**OPTIONS).experiment.number
    assert world.ended(number).state == "completed"
    return world.weights(number)


@pytest.mark.long
def test_experiments_of_one_environment_share_a_forkserver(world, quiet):
    (forkserver,) = world.forkservers()
    number = world.lasting(**OPTIONS)
    world.reached(number, 2)
    ranks = world.ranks()
    assert {rank.ppid() for rank in ranks.values()} == {forkserver.pid}
    assert sorted(ranks) == [0, 1]
    folder = str(world.home / "attempts" / f"{number}.1-1")
    for rank in ranks.values():  # people look for them like that
        assert rank.cmdline() == [sys.executable, "-P", "-m", "kernel_backend.runner", folder]
    world.hurry(number)
    assert world.ended(number).state == "completed"
    assert world.weights(number) == quiet


def test_a_killed_forkserver_costs_its_gangs_an_attempt_and_counts_against_nobody(world, quiet):
    number = world.lasting(**OPTIONS, backend="torch")
    world.checkpointed(number)
    (forkserver,) = world.forkservers()
    forkserver.kill()
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    assert (overview.state, overview.trials[0].attempt, overview.trials[0].failures) == ("completed", 2, 0)
    lost = overview.attempts[0]
    assert (lost.outcome, lost.failure.type) == ("lost", "ForkserverLost")
    assert world.weights(number) == quiet
