"""Follow a training by an evaluation, while processes of both and the service are killed at random instants.

    python -m tests.torture.evaluations --count 50

Each checkpoint must be measured once, and each value must be that of an undisturbed training.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from jupyter_ext.submit.predict import of_checkpoints, options_of, read_data, submit_use
from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.definition.prediction_form import CHECKPOINT, EVALUATING
from kernel_backend.model.ids import Reference, Source
from kernel_backend.model.labels import UNLABELLED
from kernel_backend.model.states import EXPERIMENT_ENDED, TrialState
from tests.support.world import DEFINITION, World, until
from tests.torture.victims import kill

EVERY = 4  # steps from checkpoint to checkpoint
_VICTIMS = ("rank", "launcher", "service", "rank 0 in a save")
# It has no validation of its own: what would be that is measured.
SOURCE = DEFINITION.replace("validation_data", "test_data")


class Outcome(NamedTuple):
    """Values that the training got, by step, the number of kills, and of evaluations."""

    values: dict[int, float]
    kills: int
    measured: int


def followed(world: World, epochs: int, pause: float) -> tuple[int, int]:
    """Submit a training and an evaluation that follows it, and return their numbers."""
    options = {"contract": CONTRACT, "slots": 1, "checkpoint_every": {"steps": EVERY}, "max_restarts": 1000}
    number = world.submit(SOURCE, epochs=epochs, pause=pause, await_evaluation=True, **options).experiment.number
    client = Client.connect(start=False, home=world.home)
    config = of_checkpoints(options_of(slots="1", batch_size="8", threads="1", max_restarts="1000"), follow=True)
    rows = read_data(EVALUATING, "test_data")
    made = submit_use(
        client, EVALUATING, Source(Reference(number)), rows.capture, {}, config, labels=UNLABELLED, role=rows.role
    )
    return number, made.experiment.number


def outcome(world: World, number: int, evaluation: int, kills: int = 0) -> Outcome:
    """Wait for the ends, and return the values; raise AssertionError if a checkpoint was measured twice or never."""
    for each in (number, evaluation):
        assert world.ended(each, patience=1200).state == "completed", world.overview(each)
    client = Client.connect(start=False, home=world.home)
    rows = client.trial_rows(evaluation)
    assert {row.state for row in rows} == {TrialState.COMPLETED}
    steps = [int(str(row.params[CHECKPOINT]).partition("@")[2]) for row in rows]
    reports = [each for each in client.reports(number) if each.kind == "validation"]
    assert sorted(each.step for each in reports) == sorted(set(steps)), "each step has one validation"
    assert not [each for each in client.checkpoints(number) if "awaited" in each.kept]
    return Outcome({each.step: each.metrics["loss"] for each in reports}, kills, len(rows))


def tormented(world: World, epochs: int, pause: float, count: int, seed: int) -> Outcome:
    """Kill up to `count` processes while a training and its evaluation run, and return the outcome."""
    draw, kills = random.Random(seed), 0
    number, evaluation = followed(world, epochs, pause)

    def over() -> bool:
        return world.overview(evaluation).experiment.state in EXPERIMENT_ENDED

    while kills < count and not over():
        until(lambda: over() or world.ranks(), "ranks are there")
        time.sleep(draw.uniform(0.0, 1.0))
        attempt = max(1, world.overview(number).trials[0].attempt)
        kills += not over() and kill(world, number, attempt, draw.choice(_VICTIMS), draw)
    return outcome(world, number, evaluation, kills)


def main() -> None:
    """Run the proof, and print a line about it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="kills")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="evaluations-") as folder:
        world = World(Path(folder, "home"))
        try:
            world.serve()
            quiet = outcome(world, *followed(world, options.epochs, 0.05))
            found = tormented(world, options.epochs, 0.5, options.count, options.seed)
            wrong = {step for step, value in found.values.items() if quiet.values.get(step, value) != value}
            assert not wrong, f"other values at steps {sorted(wrong)}"
            print(
                f"{found.kills} kills: {len(found.values)} steps of the training have their validation, equal to those "
                f"of an undisturbed one; {found.measured} checkpoints, each measured once"
            )
        finally:
            world.close()


if __name__ == "__main__":
    main()
