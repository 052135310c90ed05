"""Test users' loops, `train(run, ...)`, with a real service: killed, searched and loaded."""

from __future__ import annotations

import pytest

from kernel_backend.definition.contract import CONTRACT
from kernel_backend.errors import InvalidDefinition
from tests.support.world import World
from tests.torture.model import FORMS

pytestmark = pytest.mark.distributed

LOOP = FORMS["loop"]


def test_a_search_pauses_and_promotes_loops_by_their_validations(world: World) -> None:
    options = LOOP.options | {"epochs": 4, "loader_workers": 0, "pause": 0.0, "slots": 1}
    search = {"method": "asha", "trials": 4, "sampler": "random"}
    metric = {"name": "accuracy", "mode": "max"}
    number = world.submit(
        LOOP.source, contract=CONTRACT, search=search, metric=metric, space="lr=1e-4..1e-1:log", **options
    ).experiment.number
    overview = world.ended(number)
    assert overview.experiment.state == "completed", overview
    assert len(overview.trials) == 4
    assert {str(trial.state) for trial in overview.trials} == {"completed", "paused"}
    # A trial that was paused and promoted has one validation at the end of each epoch, and no other.
    trained = next(trial for trial in overview.trials if trial.state == "completed")
    reports = [each for each in world.reports(number, trained.index) if each.kind == "validation"]
    assert [(each.step, each.epoch) for each in reports] == [(8, 1.0), (16, 2.0), (24, 3.0), (32, 4.0)]


def test_options_about_steps_are_refused_before_slots_are_spent(world: World) -> None:
    with pytest.raises(InvalidDefinition, match="--amp is for definitions of functions"):
        world.submit(LOOP.source, contract=CONTRACT, amp="bf16")
