"""Test a training in a locked environment: its ranks see only the packages of the lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.environments.present import present
from kernel_backend.environments.storage import Environments
from kernel_backend.model.environments import packages
from tests.environments.index import needs_index
from tests.support.world import DEFINITION, World, until

pytestmark = [pytest.mark.distributed, needs_index]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, online: None) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world") / "home")
    # It must not matter: what lies there hides the locked torch.
    hiding = made.home / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text("import sys; sys.hidden = True\n")
    made.environment["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", "."), str(hiding)])
    made.environment["PYTHONDONTWRITEBYTECODE"] = "1"  # as container images set it
    made.serve()
    yield made
    made.close()


TELLING = """
import sys
print("python", sys.prefix)
print("hidden", getattr(sys, "hidden", False))
import kernel_backend
print("daylight", kernel_backend.__file__)
"""


def test_a_locked_training_runs_on_its_own_packages_and_gives_the_bits_of_an_unlocked_one(world, small):
    number = world.submit(TELLING + DEFINITION, environment=small, env="locked").experiment.number
    other = world.submit(DEFINITION).experiment.number
    assert world.ended(other).state == "completed"
    # Between the two there is a moment in which it is about to start.
    until(
        lambda: (wait := world.overview(number).wait) is None or "locked environment is being" in wait.reason,
        "it waits for its environment or has begun",
    )
    until(lambda: world.overview(number).attempts, "it begins", patience=400)
    overview = world.ended(number)
    assert overview.state == "completed", overview
    venv = world.home / "environments" / small.id / "venv"
    log = (world.home / "attempts" / f"{number}.1-1" / "rank-0.log").read_text()
    assert f"python {venv}" in log
    assert "hidden False" in log
    assert f"daylight {venv}" in log
    assert world.weights(number) == world.weights(other)
    assert packages(small, present(Path(venv, "bin", "python"), {})) == []


def test_the_next_one_starts_in_it_at_once(world, small):
    assert Environments(world.home).python(small) is not None
    number = world.submit(environment=small, env="locked").experiment.number
    wait = world.overview(number).wait
    assert wait is None or "being built" not in wait.reason
    assert world.ended(number).state == "completed"


def test_what_was_compiled_for_the_first_one_is_kept_for_the_next(world, small):
    venv = world.home / "environments" / small.id / "venv"
    for imported in ("torch", "kernel_backend"):
        assert [*venv.glob(f"lib/python*/site-packages/{imported}/__pycache__/__init__.*.pyc")], imported


def test_one_that_cannot_be_built_waits_with_the_reason_and_holds_nobody_up(world, small):
    broken = small.model_copy(update={"daylight": "0" * 64})
    number = world.submit(environment=broken, env="locked").experiment.number
    other = world.submit().experiment.number
    assert world.ended(other).state == "completed"
    wait = until(lambda: (w := world.overview(number).wait) and "files have changed" in w.reason and w, "it is told")
    assert wait.reason.endswith("this is tried again")
    assert world.overview(number).attempts == ()
