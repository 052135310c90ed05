"""kill -9 of whatever there is, at random instants, until the training is through; then its bits are compared.

    python -m tests.torture.kills --count 200
    python -m tests.torture.kills --form loop --count 40 --slots 1 2
    python -m tests.torture.kills --form fsdp2 --count 20 --slots 2 --backends torch

The victim of each kill is drawn anew: a rank, a loader worker, the launcher, the service, or rank 0 in the middle of
a checkpoint. A training that nothing disturbed says what must come out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.model.reports import Report
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.trial import checkpoint_step
from tests.support.spools import read_after
from tests.support.world import World, until
from tests.torture.model import EVERY, FORMS
from tests.torture.victims import VICTIMS, kill

BACKENDS = ("horovod", "torch")
DURATIONS = ("_runtime", "_samples_per_second", "_steps_per_second")  # endings of a Trainer's logs
EPOCHS = 24  # of the long proof: there is time for many kills in one training


class Outcome(NamedTuple):
    """Results of a training that must be the same whatever is killed."""

    parts: dict[str, str]  # digests of weights, optimizer, averages, buffers
    state: dict[str, Any]  # schedule, scaler, parameter groups, callbacks, logs, best so far
    metrics: dict[tuple[str, int], dict[str, float]]


class Killed(NamedTuple):
    """Record of a kill: the process, and how many steps were repeated."""

    victim: str
    reached: int  # the newest step that was told of
    resumed: int

    @property
    def lost(self) -> int:
        """Return the number of repeated steps."""
        return max(0, self.reached - self.resumed)


def quiet(world: World, form: str = "functions", **options: Any) -> Outcome:
    """Run an undisturbed training."""
    number = _submitted(world, form, options)
    assert world.ended(number).state == "completed", world.overview(number)
    return outcome(world, number)


def tormented(
    world: World, count: int, seed: int, form: str = "functions", **options: Any
) -> tuple[Outcome, list[Killed]]:
    """Run a training in which up to `count` processes are killed."""
    draw = random.Random(seed)
    number = _submitted(world, form, options)
    done: list[Killed] = []
    while len(done) < count and not _over(world, number):
        before = world.overview(number).trials[0].attempt
        until(lambda: _over(world, number) or world.ranks(), "ranks are there")
        _wait_until_it_trains(world, number, draw)
        victim = draw.choice(VICTIMS)
        if not kill(world, number, before, victim, draw):
            continue
        reached = _step(world, number)
        if victim != "service":
            _wait_for_the_next(world, number, before)
        done.append(Killed(victim, reached, reached if victim == "service" else _resumed_at(world, number)))
    ended = world.ended(number)
    assert ended.state == "completed", ended
    return outcome(world, number), done


def _submitted(world: World, form: str, options: dict[str, Any]) -> int:
    training = FORMS[form]
    return world.submit(training.source, contract=CONTRACT, **(training.options | options)).experiment.number


def outcome(world: World, number: int) -> Outcome:
    """Return a training's newest checkpoint and all of its metrics; no report may be stored twice."""
    newest: Manifest = CheckpointStorage(str(world.home / "checkpoints")).open(number, 1).committed()[-1]
    metrics = {(report.kind, report.step): report.metrics for report in world.reports(number)}
    reports = len(world.reports(number))
    assert reports == len(metrics), "a report was stored twice"
    parts = {part.name: part.digest for part in newest.parts}
    return Outcome(parts, _without_durations(json.loads(json.dumps(newest.state))), metrics)


def _without_durations(state: dict[str, Any]) -> dict[str, Any]:
    """Remove the durations of evaluations from a Trainer's logs, as they differ in each run."""
    held = state.get("trainer", {}).get("state", {}).get("value", {})  # Lightning's has no such log
    if "log_history" in held:
        held["log_history"] = [
            {name: value for name, value in logs.items() if not name.endswith(DURATIONS)}
            for logs in held["log_history"]
        ]
    return state


def differences(before: Outcome, after: Outcome) -> list[str]:
    """List the results that differ in any bit."""
    found = [
        f"part {name}" for name in before.parts.keys() | after.parts if before.parts.get(name) != after.parts.get(name)
    ]
    found += [f"state {line}" for line in _unlike(before.state, after.state)]
    both = before.metrics.keys() & after.metrics.keys()
    found += [f"{kind} at {step}" for kind, step in both if before.metrics[kind, step] != after.metrics[kind, step]]
    if before.metrics.keys() != after.metrics.keys():
        found.append(f"other reports: {sorted(before.metrics.keys() ^ after.metrics.keys())}")
    return found


def _unlike(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Return the name and a description of the first difference between two states."""
    if type(before) is not type(after):
        yield f"{at}: {before!r} became {after!r}"
    elif isinstance(before, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _unlike(before.get(key), after.get(key), f"{at}/{key}")
    elif isinstance(before, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _unlike(one, other, f"{at}/{place}")
    elif before != after:
        yield f"{at}: {before!r} became {after!r}"


def _over(world: World, number: int) -> bool:
    return world.overview(number).experiment.state in EXPERIMENT_ENDED


def _wait_until_it_trains(world: World, number: int, draw: random.Random) -> None:
    """Wait for some random time of an attempt, sometimes before its first step."""
    if draw.random() < 0.8:
        attempt = world.overview(number).trials[0].attempt
        goal = _spooled(world, number, attempt) + draw.randrange(1, 2 * EVERY)
        until(lambda: _over(world, number) or _spooled(world, number, attempt) >= goal, "it trains")
    time.sleep(draw.random() * 0.1)


def _wait_for_the_next(world: World, number: int, attempt: int) -> None:
    """Wait until the training continues in a later attempt."""
    until(lambda: _over(world, number) or world.overview(number).trials[0].attempt > attempt, "the next attempt")


def _step(world: World, number: int) -> int:
    """Return the newest step that any attempt has reported."""
    attempt = world.overview(number).trials[0].attempt
    return _spooled(world, number, attempt)


def _spooled(world: World, number: int, attempt: int) -> int:
    records = read_after(world.home / "attempts" / f"{number}.1-{attempt}" / "spool.jsonl", 0)
    return max((record.step for record in records if isinstance(record, Report)), default=0)


def _resumed_at(world: World, number: int) -> int:
    return checkpoint_step(world.overview(number).attempts[-1].resume_from)


def proof(
    count: int,
    seed: int,
    slots: int,
    backend: str,
    world: World,
    expected: Outcome,
    form: str = "functions",
    **options: Any,
) -> str:
    """Kill in one training after another until `count` kills are done; return a line with the result.

    `expected` came of an undisturbed one with the same `options`. Raises AssertionError at the first bit that differs.
    """
    kills: list[Killed] = []
    trainings = 0
    while len(kills) < count:
        trainings += 1
        wanted = options | {"slots": slots, "backend": backend}
        found, done = tormented(world, count - len(kills), seed + trainings, form, **wanted)
        assert not differences(expected, found), (differences(expected, found), done, f"seed {seed + trainings}")
        kills += done
    victims = ", ".join(
        f"{number} {victim}" for victim, number in sorted(Counter(kill.victim for kill in kills).items())
    )
    most = max(kill.lost for kill in kills)
    return (
        f"{len(kills)} of {count} kills survived with equal bits over {backend} on {slots} slots "
        f"({trainings} trainings; {victims}); at most {most} steps again, a checkpoint every {EVERY}"
    )


def shares(count: int, gangs: Sequence[int] = (2, 3), backends: Sequence[str] = BACKENDS) -> list[tuple[int, str, int]]:
    """Return slots, backend and number of kills for each part of the proof; the numbers add up to `count`."""
    parts = list(itertools.product(gangs, backends))
    each, more = divmod(count, len(parts))
    found = [(slots, backend, each + (nth < more)) for nth, (slots, backend) in enumerate(parts)]
    return [part for part in found if part[2]]


def main() -> None:
    """Run the long proof: kills on each backend, with two and three slots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--form", choices=FORMS, default="functions")
    parser.add_argument("--slots", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "home", slots=3)
        world.serve()
        try:
            form = options.form
            expected: dict[int, Outcome] = {}
            for nth, (slots, backend, share) in enumerate(shares(options.count, options.slots, options.backends)):
                if slots not in expected:
                    expected[slots] = quiet(world, form, slots=slots, backend="torch", epochs=EPOCHS)
                seed = options.seed + 1000 * nth
                print(proof(share, seed, slots, backend, world, expected[slots], form, epochs=EPOCHS), flush=True)
            print(f"all {options.count} kills survived", flush=True)
        finally:
            world.close()


if __name__ == "__main__":
    main()
