"""Compare the final weights after kill -9 and resume with those of an undisturbed training, with four libraries.

Every contender trains the same definition (`contenders/breakable.py`: 48 steps, a checkpoint every 4) in one process
with two loader workers on the CPU, with fixed seeds and deterministic algorithms. First it trains twice without a kill:
if the results differ, its resumes cannot be exact. Then the same kills are applied to all, each at a random moment
within a step, and the training resumes from the newest checkpoint. Daylight restarts by itself; the others are
restarted by this file at once. None validates, since validation would draw random numbers in the other libraries.

    python benchmarks/resume_exactness.py            three trainings of six kills
    python benchmarks/resume_exactness.py --quick    one of three
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import breakable, survivors
from contenders.killable import Attempt, Daylight, Outcome, Peer, Step, Training

from tests.support.world import World

PER_EPOCH = breakable.SAMPLES // breakable.BATCH_SIZE
STEPS = breakable.EPOCHS * PER_EPOCH
PATIENCE_S = 300.0


class Kill(NamedTuple):
    """A kill that comes `delay_s` seconds after the given step, counted from 1, has begun."""

    step: int
    delay_s: float


Start = Callable[[Path], Training]


def train(start: Start, folder: Path, kills: Sequence[Kill]) -> Outcome:
    """Train to the end, and kill the training when each of the given steps is first begun."""
    training, left, killed = start(folder), list(kills), 0
    deadline = time.monotonic() + PATIENCE_S
    while not training.over():
        if time.monotonic() > deadline:
            return Outcome({}, training.attempts(), f"not over after {PATIENCE_S:g} s")
        newest = next(reversed(training.attempts()), None)
        if left and newest and newest.pid != killed and newest.reached >= left[0].step:
            time.sleep(left.pop(0).delay_s)
            killed = newest.pid
            with contextlib.suppress(ProcessLookupError):  # it was in its last step, and is through
                os.kill(killed, signal.SIGKILL)
        time.sleep(0.002)
    return training.outcome()


def lineage(attempts: Sequence[Attempt]) -> list[Step]:
    """Return the steps that led to the final weights, without those that a resume undid."""
    steps: list[Step] = []
    for attempt in attempts:
        steps = steps[: attempt.resumed] + attempt.steps
    return steps


def misfed(steps: Sequence[Step]) -> tuple[int, int]:
    """Count the samples trained on twice or more within an epoch, and those never trained on, over all epochs."""
    twice = never = 0
    for epoch in range(breakable.EPOCHS):
        seen = Counter(sample for step in steps if step.epoch == epoch for sample in step.samples)
        twice += sum(count > 1 for count in seen.values())
        never += breakable.SAMPLES - len(seen)
    return twice, never


def lost(attempts: Sequence[Attempt]) -> list[int]:
    """Return the number of steps that had to be trained again, for each resume."""
    return [before.reached - after.resumed for before, after in itertools.pairwise(attempts)]


def farthest(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of a weight; counters of BatchNorm are not compared."""
    floats = {name: other for name, other in others.items() if other.is_floating_point()}
    return max(float((weights[name] - other).abs().max()) for name, other in floats.items())


def digest(weights: dict[str, torch.Tensor]) -> str:
    """Return a digest of the weights, equal only where every bit is."""
    found = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def schedule(draw: random.Random, count: int) -> list[Kill]:
    """Draw that many kills in one training, at different steps."""
    steps = sorted(draw.sample(range(3, STEPS), count))
    return [Kill(step, draw.random() * 0.03) for step in steps]


def examine(name: str, start: Start, folder: Path, schedules: Sequence[Sequence[Kill]]) -> None:
    """Train without and with kills, and print the contender's row."""
    quiet = [train(start, folder / f"quiet-{number}", ()) for number in range(2)]
    if problem := quiet[0].problem or quiet[1].problem:
        print(f"  {name:28} did not train: {problem}", flush=True)
        return
    expected = quiet[0].weights
    same = digest(expected) == digest(quiet[1].weights)
    killed = [train(start, folder / f"killed-{number}", kills) for number, kills in enumerate(schedules)]
    ended = [each for each in killed if not each.problem]
    equal = sum(digest(each.weights) == digest(expected) for each in ended)
    apart = max((farthest(each.weights, expected) for each in ended), default=float("nan"))
    trained = [lineage(each.attempts) for each in ended]
    fed = [misfed(steps) for steps in trained]
    again = [steps for each in killed for steps in lost(each.attempts)]
    row(
        name,
        "yes" if same else "no",
        f"{equal} of {len(killed)}",
        f"{apart:.2g}",
        sum(one[0] for one in fed),
        sum(one[1] for one in fed),
        max(map(len, trained), default=0),
        f"{sum(again) / max(1, len(again)):.1f}",
        max(again, default=0),
        len(again),
    )
    for each in killed:
        if each.problem:
            print(f"  {'':28} did not end: {each.problem}", flush=True)


def row(name: str, *cells: object) -> None:
    """Print a line of the table."""
    print(f"  {name:28}" + "".join(f"{cell!s:>12}" for cell in cells), flush=True)


def main() -> None:
    """Print a row for each contender."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="trainings that are killed (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=6, help="kills of each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=4, help="of the kills (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one training of three kills")
    args = parser.parse_args()
    runs, kills = (1, 3) if args.quick else (args.runs, args.kills)
    draw = random.Random(args.seed)
    schedules = [schedule(draw, kills) for _ in range(runs)]
    peers = {
        "Lightning": survivors.lightning,
        "Accelerate": survivors.accelerate,
        "by hand, StatefulDataLoader": survivors.torchdata,
    }
    print(f"{runs} trainings of {STEPS} steps, {kills} kills each, seed {args.seed}")
    row("", "two runs", "killed runs", "largest", "samples", "samples", "steps", "steps again", "", "")
    row("", "equal", "bit-equal", "difference", "twice", "never", "trained", "mean", "most", "resumes")
    with tempfile.TemporaryDirectory() as name:
        for peer, function in peers.items():
            examine(peer, partial(Peer, function), Path(name) / peer, schedules)
        world = World(Path(name) / "home", slots=1)
        world.serve()
        try:
            examine("Daylight", partial(Daylight, world), Path(name) / "Daylight", schedules)
        finally:
            world.close()


if __name__ == "__main__":
    main()
