"""Test searches with real trials: paused, resumed and promoted by checkpoints, while processes are killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.model.search.records import Continue, Create, Reported, Resume
from kernel_backend.model.states import HOLDING_SLOTS
from kernel_backend.model.views.overview import Overview
from tests.support.world import DEFINITION, World, until
from tests.torture.searches import holds_together, logged, same_as_alone

pytestmark = pytest.mark.distributed

LINE = "lr=1e-4..1e-1:log width=4,8,16 dropout=0..0.5"
METRIC = {"name": "error", "mode": "min"}
OPTIONS: dict[str, Any] = {"space": LINE, "slots": 1, "epochs": 4, "metric": METRIC}


def asha(trials: int, **asked: Any) -> dict[str, Any]:
    return {"method": "asha", "trials": trials, "sampler": "random", **asked}


def submit(world: World, search: dict[str, Any], **options: Any) -> int:
    return world.submit(search=search, **{**OPTIONS, **options}).experiment.number


def states(overview: Overview) -> Counter[str]:
    return Counter(str(trial.state) for trial in overview.trials)


def test_a_search_promotes_real_trials_by_checkpoint_to_its_end(world: World) -> None:
    number = submit(world, asha(6))
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    entries = holds_together(world, number)
    # How many go on is the log's to say: while the best one trains, the other slot goes to the next best, and to as
    # many more as there is time for.
    went_on = {each.trial for each in entries if isinstance(each.decision, Resume | Continue)}
    rested = {trial.index: "completed" if trial.index in went_on else "paused" for trial in overview.trials}
    assert {trial.index: str(trial.state) for trial in overview.trials} == rested
    first = [each.event for each in entries if isinstance(each.event, Reported) and each.event.unit == 1]
    assert len(first) == 6
    assert min(first, key=lambda heard: heard.value).trial in went_on
    assert len({tuple(sorted(trial.params.items())) for trial in overview.trials}) == 6
    # Paused, resumed and promoted, its curve has the bits of one that never was.
    same_as_alone(world, number, next(trial.index for trial in overview.trials if trial.state == "completed"))


@pytest.mark.parametrize("seed", [1])
def test_a_service_that_is_killed_again_and_again_decides_as_one_that_lives(world: World, seed: int) -> None:
    number, chance = submit(world, asha(6)), random.Random(seed)
    for _ in range(3):
        time.sleep(chance.uniform(0.3, 3.0))
        world.kill_service()
        world.serve()
        if world.overview(number).ended:
            break
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    entries = holds_together(world, number)
    made = [each.decision.trial for each in entries if isinstance(each.decision, Create)]
    assert made == list(range(1, 7)) == [trial.index for trial in overview.trials]
    assert states(overview)["completed"] >= 1
    heard = [(each.event.trial, each.event.unit) for each in entries if isinstance(each.event, Reported)]
    assert len(heard) == len(set(heard))


FAULTY = (
    DEFINITION
    + """
class InvalidHyperparameters(ValueError):
    pass
def optimizer(params, lr=1e-2, kind="good"):
    if kind == "invalid":
        raise InvalidHyperparameters("these make no model")
    if kind == "broken":
        raise RuntimeError("boom")
    return torch.optim.SGD(params, lr=1e30 if kind == "overflowing" else lr)
def metrics(output, target, kind="good"):
    return {"error": (output - target).abs().squeeze(1) * (float("nan") if kind == "diverged" else 1)}
"""
)


def test_failed_trials_count_and_invalid_ones_are_replaced(world: World) -> None:
    search = {"method": "grid"}
    line = "kind=good,broken,diverged,invalid,overflowing"
    number = submit(world, search, source=FAULTY, space=line, epochs=1, max_restarts=0)
    overview = world.ended(number)
    assert overview.experiment.state == "completed"
    assert {trial.params["kind"]: str(trial.state) for trial in overview.trials} == {
        "good": "completed",
        "broken": "failed",
        "diverged": "completed",
        "invalid": "failed",
        "overflowing": "failed",
    }
    (diverged,) = (trial for trial in overview.trials if trial.params["kind"] == "overflowing")
    assert diverged.failure is not None
    assert diverged.failure.type == "NotFinite"
    entries = holds_together(world, number)
    reasons = [each.event.reason for each in entries if each.event.type == "exited"]
    assert sorted(reasons) == ["failed", "failed", "invalid"]


def test_a_metric_that_nobody_reports_fails_the_search_at_the_first_report(world: World) -> None:
    shown, named = '{"error": (output - target)', 'dict([("error", (output - target)'
    hidden = DEFINITION.replace(shown, named).replace(".squeeze(1)}", ".squeeze(1))])")
    assert hidden != DEFINITION  # its source does not show the names of its metrics, so that it is not refused
    number = submit(world, asha(2), metric={"name": "accuracy", "mode": "max"}, max_restarts=0, source=hidden)
    overview = world.ended(number)
    assert overview.experiment.state == "failed"
    failure = overview.trials[0].failure
    assert failure is not None
    assert "--metric accuracy: the validation reports no such metric, only loss error" in failure.message
    assert overview.trials[0].step <= 8


def test_parallel_bounds_a_search_and_a_time_limit_ends_it(world: World) -> None:
    number = submit(world, asha(50, parallel=1, max_time=5.0), pause=0.05)
    most = 0

    def look() -> Overview | None:
        nonlocal most
        found = world.overview(number)
        most = max(most, sum(trial.state in HOLDING_SLOTS for trial in found.trials))
        return found if found.ended else None

    overview = until(look, "the time is over")
    assert most == 1
    assert overview.experiment.state == "completed"
    assert 0 < len(overview.trials) < 50
    closed = [each.event for each in logged(world, number) if each.event.type == "closed"]
    assert [each.limit for each in closed] == ["max_time"]
    assert not states(overview).keys() & {"running", "starting", "queued"}


def test_a_search_is_paused_resumed_and_stopped_as_a_whole(world: World) -> None:
    number = submit(world, asha(50), pause=0.02)
    until(lambda: any(trial.step for trial in world.overview(number).trials), "a trial trains")
    client = world.serve()
    client.pause(number)
    until(lambda: not states(world.overview(number)).keys() & {"running", "releasing", "starting"}, "all rest")
    before = len(logged(world, number))
    time.sleep(1.5)
    assert len(logged(world, number)) == before
    client.resume(number)
    until(lambda: len(logged(world, number)) > before, "it goes on")
    client.stop(number)
    overview = world.ended(number)
    assert overview.experiment.state == "stopped"
    assert states(overview).keys() <= {"stopped", "completed", "failed"}
    holds_together(world, number)


PREPARED = (
    DEFINITION
    + """
def prepare():
    with open("prepared", "a") as file:
        file.write("once\\n")
    time.sleep(1.0)
"""
)


def test_prepare_runs_once_for_all_trials_of_a_search(world: World, tmp_path: Path) -> None:
    number = submit(world, {"method": "random", "trials": 3}, source=PREPARED, epochs=1, cwd=tmp_path)
    overview = world.ended(number)
    assert states(overview) == {"completed": 3}
    assert (tmp_path / "prepared").read_text() == "once\n"
    again = submit(world, {"method": "random", "trials": 1}, source=PREPARED, epochs=1, cwd=tmp_path)
    world.ended(again)
    assert (tmp_path / "prepared").read_text() == "once\nonce\n"


def test_a_prepare_that_fails_ends_the_search_once_with_one_message(world: World, tmp_path: Path) -> None:
    source = PREPARED.replace("time.sleep(1.0)", "raise OSError('the mirror is away')")
    message = "prepare() fails, so that no trial can begin: OSError: the mirror is away (cell [4] line 23)"
    numbers = {}
    for method in ("random", "asha"):
        search = {"method": method, "trials": 12, "sampler": None}
        numbers[method] = number = submit(world, search, source=source, cwd=tmp_path)
        overview = world.ended(number)
        assert overview.experiment.state == "failed", method
        assert [each for each in overview.warnings if "prepare()" in each] == [message], method
        assert states(overview)["failed"] == 1, method
        assert len(overview.trials) <= 2, method  # one for each slot
        failures = [each.event for each in holds_together(world, number) if each.event.type == "failed"]
        assert [each.message for each in failures] == [message], method
    world.kill_service()
    world.serve()
    for method, number in numbers.items():
        assert message in world.overview(number).warnings, method
