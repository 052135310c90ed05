"""kill -9 of scripts of the field that run as commands on two slots, and searches of them by ASHA.

    python -m tests.torture.commands --kills 10
    python -m tests.torture.commands --kills 10 --tensorflow /path/to/an/environment/bin/python

A DDP script, and with a Python that has TensorFlow a Keras script, save and load checkpoints of their own. A killed job
must print the numbers of each epoch, and the digest of the weights, that the script prints by itself in two processes
without Daylight, and begin no epoch again that it had saved. In a search a paused trial must go on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from kernel_backend.model.search.records import Continue, Reported, Resume
from kernel_backend.model.views.overview import Overview
from kernel_backend.runner.forms.command.reports import LogPatterns
from tests.support.ports import free_ports
from tests.support.world import World, until
from tests.torture.searches import holds_together
from tests.torture.victims import kill

SCRIPTS = Path(__file__).parents[1] / "programs" / "commands"
SLOTS = 2
EPOCHS = 30  # of the killed ones
LONG_S = 1800.0  # for the epochs after the last kill, on a slow machine
VICTIMS = ("program of a rank", "rank", "launcher", "all programs", "all of the gang")
TRIALS, UNITS, ETA = 9, 9, 3  # of a search
RUNGS = (1, 3)  # before its last unit


class Script(NamedTuple):
    """Script as its author wrote it, with the forms of its options and its output."""

    name: str
    python: str
    epochs: str  # its options' names
    rate: str
    folder: str
    patterns: tuple[str, ...]  # that find the epoch, and its numbers, in its log
    saves_first: bool  # whether it saves an epoch before it prints its numbers

    def words(self, folder: str, epochs: int, rate: str) -> list[str]:
        """Return the command that trains for this long, and saves into a folder."""
        return [self.python, self.name, self.epochs, str(epochs), self.rate, rate, self.folder, folder]


DDP = Script(
    "ddp_digits.py",
    "python",
    "--epochs",
    "--lr",
    "--output_dir",
    (r"^epoch (?P<epoch>\d+),", r" loss: (?P<loss>[\d.]+) accuracy: (?P<accuracy>[\d.]+)"),
    saves_first=False,
)


def keras(python: str) -> Script:
    """Return the TensorFlow script for an environment with this Python."""
    patterns = (r"^Epoch (?P<epoch>\d+)/", r" loss: (?P<loss>\S+) .* val_accuracy: (?P<accuracy>[\d.]+)")
    return Script("keras_digits.py", python, "--epochs", "--learning_rate", "--backup_dir", patterns, saves_first=True)


class Printed(NamedTuple):
    """Parsed output of rank 0 of a run."""

    begun: list[int]  # epochs, in order
    numbers: dict[int, dict[str, float]]  # of those that ended
    weights: str | None  # the digest at the end


def read(script: Script, log: Path) -> Printed:
    """Read a log of rank 0."""
    begun: list[int] = []
    numbers: dict[int, dict[str, float]] = {}
    patterns = LogPatterns(log, script.patterns)
    for each in [*patterns.new(), *patterns.rest()]:
        if each.epoch is not None:
            begun.append(each.epoch)
        if each.values:
            numbers[begun[-1]] = each.values
    found = re.search(r"^final weights: (\w+)$", log.read_text(errors="replace"), re.MULTILINE)
    return Printed(begun, numbers, found and found[1])


def alone(script: Script, folder: Path, epochs: int) -> Printed:
    """Run a script in two processes without Daylight, connected by hand."""
    shutil.copy(SCRIPTS / script.name, folder)
    ports = free_ports(SLOTS)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    ranks = []
    for rank in range(SLOTS):
        env = os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(SLOTS)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0]), "OMP_NUM_THREADS": "1"}
        env |= {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}
        words = script.words("saved", epochs, "0.001")
        words[0] = sys.executable if script.python == "python" else script.python
        with (folder / f"rank-{rank}.log").open("wb") as log:
            ranks.append(subprocess.Popen(words, cwd=folder, env=env, stdout=log, stderr=log))
    assert [each.wait() for each in ranks] == [0] * SLOTS, (folder / "rank-0.log").read_text()[-3000:]
    return read(script, folder / "rank-0.log")


def submit(world: World, script: Script, folder: Path, epochs: int, rate: str, *options: str) -> int:
    """Submit a script from its folder, like a user in a terminal, and return its number."""
    shutil.copy(SCRIPTS / script.name, folder)
    patterns = [word for each in script.patterns for word in ("--metric-pattern", each)]
    words = [f"--slots={SLOTS}", "--threads=1", "--metric=accuracy:max", f"--epochs={epochs}", *patterns, *options]
    command = script.words("{checkpoints}", epochs, rate)
    daylight = str(Path(sys.executable).with_name("daylight"))
    line = [daylight, "submit", "--json", *words, "--", *command]
    done = subprocess.run(line, cwd=folder, env=world.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    number: int = json.loads(done.stdout)["experiment"]["number"]
    return number


def attempts(world: World, script: Script, number: int, trial: int = 1) -> list[Printed]:
    """Return the parsed output of each attempt of a trial, in order."""
    logs = world.home.glob(f"attempts/{number}.{trial}-*/rank-0.log")
    return [read(script, log) for log in sorted(logs, key=lambda log: int(log.parent.name.rpartition("-")[2]))]


def goes_on(script: Script, found: Sequence[Printed]) -> int:
    """Return how often an attempt resumed; raise AssertionError if one did not start at its checkpoint."""
    ended: int | None = None  # the newest epoch whose numbers were printed
    times = 0
    for each in found:
        if each.begun and ended is not None:
            # A kill may fall between the line and the checkpoint of an epoch.
            ends = {ended + 1, ended + 2} if script.saves_first else {ended, ended + 1}
            assert each.begun[0] in ends, (each.begun, ended)
            times += 1
        assert each.begun == list(range(each.begun[0], each.begun[0] + len(each.begun))) if each.begun else True
        ended = max(each.numbers, default=ended)
    return times


# Kills


def killed(world: World, script: Script, folder: Path, kills: int, draw: random.Random) -> tuple[int, Counter[str]]:
    """Run a script as a job and kill its processes this often; return its number and the killed processes."""
    number = submit(world, script, folder, EPOCHS, "0.001", "--max-restarts=1000")
    died: Counter[str] = Counter()
    while died.total() < kills:
        before = world.overview(number).trials[0].attempt
        until(lambda: len(_programs(world)) >= SLOTS or _over(world, number), "its programs run")
        _wait(world, script, number, draw)
        assert not _over(world, number), f"it ended after {died.total()} kills: {world.overview(number).trials[0]}"
        victim = draw.choice(VICTIMS)
        if _kill(world, number, victim, draw):
            died[victim] += 1
            until(partial(_tried_again, world, number, before), "it is tried again")
    ended = world.ended(number, LONG_S)
    assert ended.state == "completed", ended.trials[0]
    return number, died


def _wait(world: World, script: Script, number: int, draw: random.Random) -> None:
    """Wait until a random time in an attempt: mostly in one of its first epochs, sometimes during its start."""
    if draw.random() < 0.8:
        goal = draw.randrange(3)
        until(lambda: len(attempts(world, script, number)[-1].begun) > goal or _over(world, number), "it trains")
    time.sleep(draw.uniform(0.0, 1.5))


def _programs(world: World) -> list[psutil.Process]:
    """Return the processes of the script itself."""
    found = []
    for rank in world.ranks().values():
        try:
            found += rank.children()
        except psutil.NoSuchProcess:
            continue
    return found


def _kill(world: World, number: int, victim: str, draw: random.Random) -> bool:
    if victim in ("rank", "launcher"):
        return kill(world, number, 1, victim, draw)
    programs = _programs(world)
    if victim == "program of a rank":
        programs = [draw.choice(programs)] if programs else []
    if victim == "all of the gang":
        programs = [*world.processes("kernel_backend.launch "), *world.ranks().values(), *programs]
    for each in programs:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    return bool(programs)


def _tried_again(world: World, number: int, before: int) -> bool:
    return world.overview(number).trials[0].attempt > before


def _over(world: World, number: int) -> bool:
    return world.overview(number).ended


def killing(world: World, script: Script, folder: Path, kills: int, seed: int) -> str:
    """Compare a script that is killed with an undisturbed run without Daylight; return a sentence with the result."""
    (folder / "alone").mkdir(parents=True)
    (folder / "job").mkdir()
    expected = alone(script, folder / "alone", EPOCHS)
    began = time.monotonic()
    number, died = killed(world, script, folder / "job", kills, random.Random(seed))
    took = time.monotonic() - began
    found = attempts(world, script, number)
    times = goes_on(script, found)
    for each in found:
        for epoch, numbers in each.numbers.items():
            assert numbers == expected.numbers[epoch], (epoch, numbers, expected.numbers[epoch])
    unseen = expected.numbers.keys() - {epoch for each in found for epoch in each.numbers}
    assert len(unseen) <= (died.total() if script.saves_first else 0), unseen
    assert found[-1].weights == expected.weights is not None
    again = sum(len(each.begun) for each in found) - EPOCHS
    assert again <= died.total(), (again, died)
    victims = ", ".join(f"{count} {victim}" for victim, count in sorted(died.items()))
    return (
        f"{script.name}: {died.total()} kills ({victims}) in {took:.0f} s; {times} of {len(found)} attempts went on "
        f"from its own checkpoint, {again} of {EPOCHS} epochs were begun twice; the numbers of all epochs, and the "
        "weights, are those without Daylight"
    )


# Searches


def searching(world: World, script: Script, folder: Path) -> str:
    """Search over a script by ASHA with two slots per trial; return a sentence with the result."""
    folder.mkdir(parents=True)
    search = ("--search=asha", f"--trials={TRIALS}", f"--eta={ETA}", "lr=1e-5..1e-2:log")
    began = time.monotonic()
    number = submit(world, script, folder, UNITS, "{lr}", *search)
    overview = until(lambda: (o := world.overview(number)).ended and o, f"search {number} ends", 3600)
    return searched(world, script, number, overview, time.monotonic() - began)


def searched(world: World, script: Script, number: int, overview: Overview, took: float) -> str:
    """Compare the output of an ended search's trials with its decisions; return a sentence with the result."""
    assert overview.state == "completed", overview
    entries = holds_together(world, number)
    resumed = Counter(each.decision.trial for each in entries if isinstance(each.decision, Resume))
    continued = [each.event for each in entries if isinstance(each.decision, Continue)]
    at_once = sum(isinstance(event, Reported) and event.unit in RUNGS for event in continued)
    trials = {each.index: attempts(world, script, number, each.index) for each in overview.trials}
    assert len(trials) == TRIALS
    # An attempt whose program was already beyond the next rung when it was paused trains nothing.
    went_on = {trial: times for trial, found in trials.items() if (times := goes_on(script, found))}
    assert went_on, "no paused trial went on"
    assert all(times <= resumed[trial] for trial, times in went_on.items()), (went_on, resumed)
    begun = sum(len(each.begun) for found in trials.values() for each in found)
    trained = sum(len({epoch for each in found for epoch in each.begun}) for found in trials.values())
    best = overview.front
    assert best is not None
    return (
        f"{script.name}: a search of {TRIALS} trials in {took:.0f} s; {at_once} promotions at once, and "
        f"{resumed.total()} of paused trials, {sum(went_on.values())} of which went on from their own checkpoints; "
        f"{trained} of {TRIALS * UNITS} epochs were trained, {begun - trained} of them begun twice; "
        f"{number}.{best.index} has accuracy {best.metrics['accuracy']:.4f}; {len(entries)} decisions are as a replay "
        "makes them"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--tensorflow", metavar="PYTHON", default=os.environ.get("TENSORFLOW_PYTHON"))
    parser.add_argument("names", nargs="*", default=["ddp_digits.py", "keras_digits.py"])
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    scripts = [DDP, keras(options.tensorflow)] if options.tensorflow else [DDP]
    with tempfile.TemporaryDirectory(prefix="daylight-commands-") as place:
        world = World(Path(place) / "home", slots=SLOTS)
        world.serve()
        try:
            for script in scripts:
                if script.name in options.names:
                    folder = Path(place) / script.name
                    print(killing(world, script, folder / "killed", options.kills, options.seed), flush=True)
                    print(searching(world, script, folder / "searched"), flush=True)
        finally:
            world.close()
    if not options.tensorflow:
        print("keras_digits.py is left out: --tensorflow PYTHON names no Python that has tensorflow and tf_keras")


if __name__ == "__main__":
    main()
