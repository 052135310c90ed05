"""kill -9 of every program of the corpus, at random steps; then what it left is compared with plain `python NAME.py`.

    python -m tests.torture.programs --kills 5
    python -m tests.torture.programs --kills 2 mnist_argparse gan

Each runs in the job's own runtime, one slot, with a checkpoint every few steps. The end state (digests of all names of
the module), the printed text and the files written must equal those of an undisturbed plain run, except what the clock
says. Programs whose source shows that no checkpoint can serve them begin anew after each kill, as after a rehearsal;
those that are presumed to go on with other bits are run, and not compared. What cannot be saved is to be refused by
name.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import count
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))

from gang import Trial

from kernel_backend.definition.parse import parse
from kernel_backend.definition.script.loops import training_loops
from kernel_backend.definition.script.signs import by_the_clock, signs
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.progress import progress_file, read_tick
from tests.support.programs import PROGRAMS

EVERY = 3  # steps between checkpoints
FURTHER = 15  # steps to the next kill, at most
OWN = {"code", "attempts", "checkpoints", "hold", "hold.made", "digests.json"}
# Digests of all names at the end, which stand behind the program and are part of it in both runs. An iterator counts by
# what it gives next, as a job replaces those of Python by ones that know their position.
EPILOGUE = """
from itertools import islice as _islice
from kernel_backend.runner.forms.script.rehearsal.digests import named_digests as _digests
import json as _json
def _value(each):
    if not hasattr(type(each), "__next__"):
        return each
    try:
        return list(_islice(each, 3))
    except Exception as error:
        return repr(error)
_names = [each for each in globals() if not each.startswith("_")]
with open("digests.json", "w") as _file:
    _json.dump(_digests({each: _value(globals()[each]) for each in _names}), _file)
"""


_numbers = count(1000)


@dataclass
class Numbered(Trial):
    """Trial with its own experiment number, under which the record of a program's files is stored."""

    number: int = field(default_factory=lambda: next(_numbers))

    def job(self, resume_from: str | None = None) -> LaunchSpec:
        return super().job(resume_from).model_copy(update={"experiment": self.number})


class Left(NamedTuple):
    """Result of a run: output, digests of its values, and files."""

    printed: str
    digests: dict[str, str]
    files: dict[str, bytes]


def left_in(folder: Path, printed: str, clock: frozenset[str]) -> Left:
    """Return the results that a run left in its working folder."""
    ends = folder / "digests.json"
    digests = json.loads(ends.read_text()) if ends.exists() else {}
    found = [each for each in folder.rglob("*") if each.is_file() and each.relative_to(folder).parts[0] not in OWN]
    files = {str(each.relative_to(folder)): each.read_bytes() for each in found if each.name != "definition.py"}
    return Left(printed, {name: each for name, each in digests.items() if name not in clock}, files)


def plain(source: str, folder: Path, clock: frozenset[str]) -> Left:
    """Run a program by `python definition.py` with one thread."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.py").write_text(source)
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-u", "definition.py"]  # unbuffered: its errors stand where they do in a job's log
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    return left_in(folder, done.stdout.decode(), clock)


def killed(
    source: str, folder: Path, kills: int, draw: random.Random, clock: frozenset[str], every: str | None
) -> tuple[Left, list[int]]:
    """Run a program as a job and kill it at random steps; raise AssertionError if an attempt fails by itself.

    It goes on from its newest checkpoint, of which one is taken `every` so often; for None from its top, as after a
    rehearsal that has failed.
    """
    points: list[int] = []
    epochs = int(parse(source).settings.get("epochs", 1))  # as many as it trains by itself
    trial = Numbered(folder, source, 1, epochs=epochs, every=every or "1h")
    for _ in range(kills):
        point = (points[-1] if points else 0) + draw.randint(1, FURTHER)
        attempt = trial.start(trial.pinned() if every else None)
        ticks = attempt.folder.path / progress_file(0)
        while attempt.codes in ([], [None]):
            tick = read_tick(ticks.read_bytes()) if ticks.exists() else None
            if tick is not None and tick.phase == "step" and tick.step > point:
                os.kill(attempt.pids()[0], signal.SIGKILL)
                points.append(tick.step)
                break
            time.sleep(0.002)
        attempt.ended()
        if attempt.codes == [0]:
            break
        assert attempt.codes == [-signal.SIGKILL], attempt.logs()
    else:
        trial.every = "1h"  # it is killed no more
        attempt = trial.run(trial.pinned() if every else None)
    assert attempt.codes == [0], attempt.logs()
    return left_in(folder, (attempt.folder.path / "rank-0.log").read_text(), clock), points


def differences(one: Left, other: Left) -> dict[str, str]:
    """Return the differences by name: of printed text, values or files."""
    printed = list(unified_diff(_lines(one.printed), _lines(other.printed), n=0, lineterm=""))
    found = {"printed text": f"printed {' '.join(printed[3:6])!r}"} if printed else {}
    names = [name for name in one.digests if one.digests[name] != other.digests.get(name)]
    files = [name for name in sorted(one.files.keys() & other.files.keys()) if one.files[name] != other.files[name]]
    each = [f"name {name}" for name in names] + [f"file {name}" for name in files]
    if one.files.keys() != other.files.keys():
        each.append("names of files")
    if _of_other_names(one, other) != _of_other_names(other, one):  # counts where the names are random
        each.append("contents of files of other names")
    return found | {text: text for text in each}


def _of_other_names(one: Left, other: Left) -> list[bytes]:
    """Return the contents of files whose names the other run does not have, as names may be random."""
    return sorted(one.files[name] for name in one.files.keys() - other.files.keys())


def _lines(text: str) -> list[str]:
    """Return the lines of a text without progress bars, warnings and seconds.

    A warning names the program's file, which is another one in a job, and is given again by each process.
    """
    text = re.sub(r"^\S+:\d+: \w*Warning: (?:.*\n)*?  .*\n", "", text, flags=re.MULTILINE)
    lines = [re.sub(r"\d+\.\d+s\b", "s", each) for each in text.splitlines()]
    return [each for each in lines if each.strip() and not re.search(r"it/s|s/it|\?it|\|\s*\d+/\d+ \[", each)]


def proof(name: str, kills: int, seed: int) -> str:
    """Run one program undisturbed and killed; return its row of the table.

    A program that differs from itself in two plain runs, as it is not seeded, is compared with a job that is not
    killed; what differs between two such jobs, such as a name of a temporary file, is not compared.
    """
    source = PROGRAMS[name].read_text()
    tree = ast.parse(source)
    clock = by_the_clock(tree)
    rungs = {each.rung for each in signs(tree, training_loops(tree))}
    every = None if rungs & {"start", "anew"} else "1epochs" if "epoch" in rungs else f"{EVERY}steps"
    with tempfile.TemporaryDirectory(prefix="daylight-programs-") as place:
        folder, number = Path(place), count(1)

        def job(times: int) -> tuple[Left, list[int]]:
            draw = random.Random(seed)
            return killed(source + EPILOGUE, folder / f"job{next(number)}", times, draw, clock, every)

        began = time.monotonic()
        points: list[int] = []
        try:
            one, other = (plain(source + EPILOGUE, folder / each, clock) for each in ("plain", "again"))
            if differences(one, other):
                (one, _), (other, _) = job(0), job(0)
            left, points = job(kills)
            random_too = differences(one, other)
            found = [text for what, text in differences(one, left).items() if what not in random_too]
        except AssertionError as error:
            found = [" ".join(str(error).split())[-400:]]
    verdict = "equal" if not found else "DIFFERS: " + ", ".join(found[:6])
    if found and "NotSaved: " in found[0]:  # by name, as it should be; the next attempt of a job begins anew
        verdict = "refused: " + found[0].rpartition("NotSaved: ")[2]
    if "anew" in rungs and points:
        verdict = "ran, presumed with other bits"
    if "start" in rungs and not found:
        verdict = "equal, each time from the start"
    at = ", ".join(map(str, points))
    return f"{name:24} {time.monotonic() - began:6.1f} s  killed at steps {at:24} {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    options = parser.parse_args()
    rows = []
    for name in options.names:
        rows.append(proof(name, options.kills, options.seed))
        print(rows[-1], flush=True)
    bad = [row for row in rows if "DIFFERS" in row]
    print(f"{len(rows) - len(bad)} of {len(rows)} programs as they should be, {options.kills} kills each")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
