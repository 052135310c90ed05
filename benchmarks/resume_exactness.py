"""kill -9 and resume: are the weights those of the training that nobody killed? Lightning, Accelerate, torchdata, ours.

Everybody trains the same definition (`contenders/breakable.py`: 48 steps, a checkpoint every 4) in one process with two
loader workers on the CPU, with seeds fixed and deterministic algorithms on. First twice without a kill: whoever differs
there cannot be exact. Then with the same kills for all, each at an instant within a step drawn from a seed, and resumed
from the newest checkpoint. Daylight restarts by itself; the peers are started again by this file at once. No one
validates, which spares the peers the random numbers that validation would draw.

    python benchmarks/resume_exactness.py            three trainings of six kills
    python benchmarks/resume_exactness.py --quick    one of three
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import multiprocessing
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
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from contenders import breakable, survivors

from kernel_backend.checkpoints.places import Places
from kernel_backend.checkpoints.writer import load_model
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.trial import checkpoint_step
from tests.world import World

PER_EPOCH = breakable.SAMPLES // breakable.BATCH_SIZE
STEPS = breakable.EPOCHS * PER_EPOCH
OPTIONS: dict[str, Any] = {
    "slots": 1,
    "epochs": breakable.EPOCHS,
    "batch_size": breakable.BATCH_SIZE,
    "ema": breakable.DECAY,
    "amp": "fp16",
    "clip": breakable.CLIP,
    "loader_workers": breakable.WORKERS,
    "checkpoint_every": {"steps": breakable.EVERY},
    "max_restarts": 1000,
}
PATIENCE_S = 300.0
LOOK_S = 0.2
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "lightning", "accelerate", "torchdata.stateful_dataloader"])


class Kill(NamedTuple):
    """When this step, counted from 1, has begun, and so much of a step later."""

    step: int
    delay_s: float


class Step(NamedTuple):
    """What was trained on."""

    epoch: int
    samples: tuple[int, ...]


class Attempt(NamedTuple):
    """What one process did, after it had resumed at a step."""

    pid: int
    resumed: int
    steps: list[Step]

    @property
    def reached(self) -> int:
        """The newest step that was begun, counted from 1."""
        return self.resumed + len(self.steps)


class Outcome(NamedTuple):
    """What came of a training."""

    weights: dict[str, torch.Tensor]
    attempts: list[Attempt]
    problem: str = ""  # why it did not come to its end


class Peer:
    """A training by one of the functions of `survivors`, started again by us whenever it was killed."""

    def __init__(self, train: Callable[[Path, str], None], folder: Path) -> None:
        folder.mkdir(parents=True)
        self._train, self._folder = train, folder
        self.log = folder / "log"
        self.log.touch()
        self._start()

    def over(self) -> bool:
        """Whether it is through, or has given up; one that was killed is started again."""
        code = self._process.exitcode
        if code == -signal.SIGKILL:
            self._start()
        return code not in (None, -signal.SIGKILL)

    def attempts(self) -> list[Attempt]:
        """Its processes so far."""
        found: list[Attempt] = []
        for pid, words in _lines(self.log):
            if words[0] == "resumed":
                found.append(Attempt(pid, int(words[1]), []))
            else:
                found[-1].steps.append(_step(words))
        return found

    def outcome(self) -> Outcome:
        """What came of it."""
        if self._process.exitcode != 0:
            words = (self._folder / "errors").read_text().strip().splitlines()
            return Outcome({}, self.attempts(), words[-1] if words else f"exit code {self._process.exitcode}")
        return Outcome(torch.load(self._folder / "final.pt"), self.attempts())

    def _start(self) -> None:
        self._process = CONTEXT.Process(target=_be_a_peer, args=(self._train, self._folder, str(self.log)))
        self._process.start()


class Daylight:
    """A training that is submitted and left alone."""

    def __init__(self, world: World, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._world = world
        self.log = folder / "log"
        self.log.touch()
        source = Path(breakable.__file__).read_text()
        self._number = world.submit(source, log=str(self.log), **OPTIONS).experiment.number
        self._resumed: dict[int, int] = {}  # by process
        self._looked = 0.0

    def over(self) -> bool:
        """Whether it is through; asked for all the time, and looked up now and then."""
        if time.monotonic() - self._looked < LOOK_S:
            return False
        self._looked = time.monotonic()
        return self._world.overview(self._number).experiment.state in EXPERIMENT_ENDED

    def attempts(self) -> list[Attempt]:
        """Its attempts so far, of those that came to a step."""
        found: dict[int, list[Step]] = {}
        for pid, words in _lines(self.log):
            found.setdefault(pid, []).append(_step(words))
        if not found.keys() <= self._resumed.keys():
            self._look()
        return [Attempt(pid, self._resumed[pid], steps) for pid, steps in found.items() if pid in self._resumed]

    def _look(self) -> None:
        """Learn where its processes resumed."""
        for attempt in self._world.overview(self._number).attempts:
            ranks = self._world.home / "attempts" / f"{self._number}.1-{attempt.number}" / "ranks.json"
            if ranks.exists():
                self._resumed[json.loads(ranks.read_text())["0"]] = checkpoint_step(attempt.resume_from)

    def outcome(self) -> Outcome:
        """What came of it."""
        overview = self._world.overview(self._number)
        if overview.experiment.state != "completed":
            return Outcome({}, self.attempts(), overview.trials[0].message or overview.experiment.state)
        place = Places(str(self._world.home / "checkpoints")).open(self._number, 1)
        return Outcome(load_model(place, place.committed()[-1]), self.attempts())


Start = Callable[[Path], Any]


def train(start: Start, folder: Path, kills: Sequence[Kill]) -> Outcome:
    """Train to the end; each kill comes when its step is first begun."""
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
    outcome: Outcome = training.outcome()
    return outcome


def lineage(attempts: Sequence[Attempt]) -> list[Step]:
    """The steps that the final weights come from: what was trained after a checkpoint that was resumed is undone."""
    steps: list[Step] = []
    for attempt in attempts:
        steps = steps[: attempt.resumed] + attempt.steps
    return steps


def misfed(steps: Sequence[Step]) -> tuple[int, int]:
    """How many samples were trained on twice or more in an epoch, and how many never, over all epochs."""
    twice = never = 0
    for epoch in range(breakable.EPOCHS):
        seen = Counter(sample for step in steps if step.epoch == epoch for sample in step.samples)
        twice += sum(count > 1 for count in seen.values())
        never += breakable.SAMPLES - len(seen)
    return twice, never


def lost(attempts: Sequence[Attempt]) -> list[int]:
    """Steps begun that had to be taken again, for each resume."""
    return [before.reached - after.resumed for before, after in itertools.pairwise(attempts)]


def farthest(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    """The largest difference of a weight; what BatchNorm counts is none."""
    floats = {name: other for name, other in others.items() if other.is_floating_point()}
    return max(float((weights[name] - other).abs().max()) for name, other in floats.items())


def digest(weights: dict[str, torch.Tensor]) -> str:
    """Equal where every bit is."""
    found = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def schedule(draw: random.Random, count: int) -> list[Kill]:
    """So many kills in one training, at steps of which no two are equal."""
    steps = sorted(draw.sample(range(3, STEPS), count))
    return [Kill(step, draw.random() * 0.03) for step in steps]


def examine(name: str, start: Start, folder: Path, schedules: Sequence[Sequence[Kill]]) -> None:
    """Print a contender's row."""
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


def _lines(log: Path) -> list[tuple[int, list[str]]]:
    """The whole lines of a log: who wrote it, and its words."""
    whole = log.read_text().rpartition("\n")[0]
    found = (line.split() for line in whole.splitlines())
    return [(int(words[0]), words[1:]) for words in found]


def _step(words: Sequence[str]) -> Step:
    epoch, *samples = map(int, words)
    return Step(epoch, tuple(samples))


def _be_a_peer(train: Callable[[Path, str], None], folder: Path, log: str) -> None:
    errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    multiprocessing.set_start_method("fork", force=True)  # of loader workers, as in a plain script
    train(folder, log)


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
