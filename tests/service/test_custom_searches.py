"""Test slow searches (a class in the cell, another library's sampler): they delay no other experiment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.search.records import Create
from kernel_backend.search.log import apply_event, fold
from kernel_backend.search.settings import settings_of
from kernel_backend.store.sql import SqlStore
from tests.support.world import DEFINITION, World, until

pytestmark = pytest.mark.distributed

HALVING = '''
import os, pathlib
class Mine:
    interval = 1
    def __init__(self, space, settings):
        self.values = {}
        with open("made", "a") as made:
            print(os.getpid(), file=made)
    def ask(self, trial):
        """What it says follows from what it was told, and from the trial's number."""
        with open("asked", "a") as asked:
            print(trial, len(self.values), file=asked)
        return {"lr": 1e-3 * trial, "width": 8}
    def tell(self, trial, params, unit, value):
        assert params["lr"] == 1e-3 * trial
        self.values[trial, unit] = value
        at = [each for (_, other), each in self.values.items() if other == unit]
        return None if value == min(at) else "stop"
'''
OPTIONS: dict[str, Any] = {
    "space": "lr=1e-4..1e-1:log width=4,8,16",
    "slots": 1,
    "epochs": 3,
    "metric": {"name": "error", "mode": "min"},
    "search": {"method": "custom", "source": "Mine", "trials": 4},
}


def submit(world: World, source: str, cwd: Path, **options: Any) -> int:
    cwd.mkdir(exist_ok=True)
    return world.submit(source=DEFINITION + source, cwd=cwd, **{**OPTIONS, **options}).experiment.number


def test_a_class_of_the_cell_searches_and_after_a_kill_is_told_again_and_asked_no_more(
    world: World, tmp_path: Path
) -> None:
    # Of its four trials the last is held back, so that the kill comes amid them.
    held = 'while trial == 4 and not os.path.exists("go"): __import__("time").sleep(0.05)\n        '
    number = submit(world, HALVING.replace('return {"lr"', f'{held}return {{"lr"'), tmp_path / "mine", pause=0.05)
    made = tmp_path / "mine" / "made"
    until(lambda: len(world.overview(number).trials) >= 2, "two trials are there")
    world.kill_service()
    (tmp_path / "mine" / "go").touch()
    world.serve()
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    assert Counter(trial.state for trial in overview.trials).keys() <= {"completed", "pruned"}
    assert len(overview.trials) == 4
    asked = [int(line.split()[0]) for line in (tmp_path / "mine" / "asked").read_text().splitlines()]
    assert sorted(set(asked)) == [1, 2, 3, 4]
    assert len(asked) <= 5  # one whose answer was not stored yet, when the service was killed, is asked for again
    assert len(made.read_text().splitlines()) == 2
    store = SqlStore(world.home / "daylight.db")
    try:
        created = [each.decision.trial for each in store.search_log(number) if isinstance(each.decision, Create)]
    finally:
        store.close()
    assert created == [1, 2, 3, 4]


@pytest.mark.parametrize("when", ["ask", "tell"])
def test_a_class_that_raises_fails_its_experiment_with_its_place(world: World, tmp_path: Path, when: str) -> None:
    line = {"ask": 'return {"lr"', "tell": "assert params"}[when]
    source = HALVING.replace(line, f"self.nothing.at_all\n        {line}")
    number = submit(world, source, tmp_path / "mine")
    overview = world.ended(number)
    assert overview.experiment.state == "failed"
    expected = f"Mine.{when}() raised AttributeError: 'Mine' object has no attribute 'nothing' (cell [4] line"
    assert expected in overview.warnings[-1]
    assert {str(trial.state) for trial in overview.trials} <= {"completed", "paused"}


def test_while_a_class_thinks_others_go_on(world: World, tmp_path: Path) -> None:
    thinks = 'while not os.path.exists("go"): __import__("time").sleep(0.05)\n        '
    number = submit(world, HALVING.replace('return {"lr"', f'{thinks}return {{"lr"'), tmp_path / "mine")
    until(lambda: (tmp_path / "mine" / "asked").exists(), "the class is asked")
    other = world.submit(slots=1, epochs=1).experiment.number
    assert world.ended(other).experiment.state == "completed"
    assert world.overview(number).trials == ()
    (tmp_path / "mine" / "go").touch()
    assert world.ended(number).experiment.state == "completed"


def test_a_class_that_is_not_there_is_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(InvalidDefinition, match="the cell has no class Mine"):
        submit(world, "", tmp_path / "mine")


def test_a_stopped_search_leaves_no_process(world: World, tmp_path: Path) -> None:
    number = submit(world, HALVING, tmp_path / "mine", pause=0.2, epochs=1000)
    made = tmp_path / "mine" / "made"
    until(lambda: made.exists() and made.read_text().endswith("\n"), "the class is made")
    pid = int(made.read_text())
    client = world.serve()
    client.stop(number)
    assert world.ended(number).experiment.state == "stopped"
    until(lambda: not Path(f"/proc/{pid}").exists(), "its process is gone")


def test_a_sampler_of_another_library_asks_apart_and_a_log_is_folded_without_it(world: World) -> None:
    search = {"method": "tpe", "trials": 14}
    number = world.submit(**{**OPTIONS, "epochs": 1, "search": search, "space": "lr=1e-4..1e-1:log"}).experiment.number
    overview = world.ended(number)
    assert [str(trial.state) for trial in overview.trials] == ["completed"] * 14
    experiment = overview.experiment
    store = SqlStore(world.home / "daylight.db")
    try:
        entries = store.search_log(number)
    finally:
        store.close()
    asked = [length for length, each in enumerate(entries) if isinstance(each.decision, Create)]
    for length in asked[-3:]:  # there were enough results to learn from
        searcher = fold(settings_of(experiment.config), experiment.space, entries[:length])
        assert apply_event(searcher, entries[length].event) == entries[length].decision
