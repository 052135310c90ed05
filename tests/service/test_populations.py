"""Test population-based training with real trials: copies continue from their parents' checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_backend.model.search.records import Create
from kernel_backend.search.log import apply_event, fold
from kernel_backend.search.settings import settings_of
from kernel_backend.store.sql import SqlStore
from tests.support.world import World

pytestmark = pytest.mark.distributed

OPTIONS: dict[str, Any] = {
    "space": "lr=1e-6..1e-1:log",
    "slots": 1,
    "epochs": 4,
    "metric": {"name": "error", "mode": "min"},
    "seed": 39,  # of three learning rates, 5e-3, 5e-5 and 2e-2, it is the second that is to give way
    "search": {"method": "pbt", "population": 3, "interval": 1},
}


def test_the_worst_gives_way_to_a_copy_that_goes_on_from_its_parents_checkpoint(world: World) -> None:
    number = world.submit(**OPTIONS).experiment.number
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    store = SqlStore(world.home / "daylight.db")
    try:
        entries = store.search_log(number)
        trials = store.trials(number)
    finally:
        store.close()
    copies = [each.decision for each in entries if isinstance(each.decision, Create) and each.decision.parent]
    assert copies
    client = world.serve()
    for copy in copies:
        trial = next(each for each in trials if each.index == copy.trial)
        assert trial.begins_from is not None
        assert trial.begins_from.startswith(f"{number}.{copy.parent}/")
        begun = min(each.epoch for each in client.reports(number, trial=copy.trial, kind="validation"))
        assert begun > 1  # the first epochs are its parent's
    assert sum(trial.state == "completed" for trial in trials) == 3
    experiment = overview.experiment
    for length in range(len(entries)):
        searcher = fold(settings_of(experiment.config), experiment.space, entries[:length])
        assert apply_event(searcher, entries[length].event) == entries[length].decision
