"""Test a cell's search class in its own process: it answers in time, or is killed and the reason is reported."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kernel_backend.errors import SearchFailed
from kernel_backend.launch.search_process import ChildSearchProcess
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.records import Create, Settings
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.search.custom import Custom
from tests.support.world import gone, until

ROOT = Path(__file__).parents[2]
SPACE = Space(parameters=(Parameter(name="lr", domain=Range(low=1e-4, high=1e-1, scale="log")),))
SETTINGS = Settings(method="custom", source="Mine", units=4, trials=3, seed=7)
CELL = """\
def model(lr=0.1): ...
def train_data(): ...
def loss(output, target): ...
"""
GOOD = """
class Mine:
    interval = 2
    def __init__(self, space, settings):
        (self.lr,) = space.parameters
        self.seed, self.units, self.told = settings.seed, settings.units, []
        print("made, and heard by nobody who waits for an answer")
    def ask(self, trial):
        return {"lr": self.lr.domain.low * (self.seed + trial)}
    def tell(self, trial, params, unit, value):
        self.told.append((trial, params, unit, value))
        return "stop" if value != value else None
"""

Make = Callable[..., ChildSearchProcess]


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Make]:
    """Provide a function that creates a client of a class in cell [4], after four lines of roles."""
    made: list[ChildSearchProcess] = []

    def make(class_text: str, **limits: float) -> ChildSearchProcess:
        code = tmp_path / f"code{len(made)}"
        code.mkdir()
        source = CELL + textwrap.dedent(class_text)
        (code / "definition.py").write_text(source)
        piece = Piece(cell=4, line=1, count=source.count("\n"), cell_line=2)
        environment = Environment(
            python="3.11", implementation="CPython", platform="Linux-6", cpu="", cores=1, distributions={}
        )
        snapshot = Snapshot(version="0", numerics=1, pieces=(piece,), roles_from=1, environment=environment)
        (code / "snapshot.json").write_text(snapshot.model_dump_json())
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        made.append(
            ChildSearchProcess(sys.executable, code, tmp_path, SETTINGS, SPACE, tmp_path / "search.log", env, **limits)
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def children() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # what other tests have left may end at this moment
            if each.status() != psutil.STATUS_ZOMBIE and "kernel_backend.runner.search_process" in each.cmdline():
                found.append(each)
    return found


def test_a_class_is_made_once_asked_and_told(asker: Make, tmp_path: Path) -> None:
    mine = asker(GOOD)
    assert children() == []  # nothing is started before the first question
    assert mine.interval() == 2
    assert mine.ask(3) == {"lr": pytest.approx(1e-3)}
    assert mine.tell(3, {"lr": 1e-3}, 1, 0.5) is None
    assert mine.tell(3, {"lr": 1e-3}, 2, math.nan) == "stop"
    assert len(children()) == 1
    assert "heard by nobody" in (tmp_path / "search.log").read_text()
    mine.close()
    assert children() == []


def test_it_serves_a_whole_search(asker: Make) -> None:
    search = Custom(SETTINGS, SPACE, asker(GOOD))
    made = [search.on_slot() for _ in range(3)]
    assert [each.until for each in made if isinstance(each, Create)] == [2, 2, 2]
    for trial in (1, 2, 3):
        for unit in (1, 2, 3, 4):
            verdict = search.on_report(trial, unit, 1 / unit)
        assert verdict.type == "complete"
    assert search.over()
    assert search.failure is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("return {", "return 1 / 0 or {"), "Mine.ask() raised ZeroDivisionError: .* (cell [4] line 13)"),
        (GOOD.replace("self.seed, self", "self.nothing, self.seed, self"), "Mine() raised "),
        (GOOD.replace("class Mine", "class Other"), "Mine() raised InvalidDefinition: the cell has no class Mine"),
        (GOOD.replace("return {", "return {(1, 2): 3} or {"), "Mine.ask() raised TypeError: ask answered {(1, 2): 3}"),
        (GOOD.replace("return {", "return object() or {"), "is no number, text, list or dictionary"),
        (GOOD.replace("return {", "raise SystemExit(3)\n        return {"), "sys.exit(3)"),
        (GOOD.replace("return {", "import os; os._exit(3)\n        return {"), "Mine.ask() exited with code 3"),
        (GOOD.replace("return {", "import os; os.kill(os.getpid(), 9)\n        return {"), "was ended by SIGKILL"),
        (
            GOOD.replace("return {", "import os; os.closerange(3, 99)\n        while True: pass\n        return {"),
            "closed the",
        ),
        (GOOD.replace("return {", "return {'\\ud800': 1} or {"), r"answered {'\ud800': 1}, which is no plain value"),
        (GOOD.replace("return {", "return 'long' * 2**20 or {"), "Mine answered with more than 1 MiB"),
        ("raise KeyError('no such file')\n" + GOOD, "Mine() raised KeyError: 'no such file' (cell [4] line 5)"),
    ],
)
def test_a_class_that_fails_is_told_with_its_place_and_is_gone(asker: Make, text: str, words: str) -> None:
    mine = asker(text)
    with pytest.raises(SearchFailed) as failed:
        mine.ask(1)
    for part in words.split(" .* "):
        assert part in failed.value.message
    assert children() == []
    with pytest.raises(SearchFailed) as again:
        mine.tell(1, {}, 1, 0.5)
    assert again.value is failed.value


def test_the_record_of_an_exception_comes_with_it(asker: Make) -> None:
    with pytest.raises(SearchFailed) as failed:
        asker(GOOD.replace("return {", "return [][trial] or {")).ask(1)
    failure = failed.value.details["failure"]
    assert failure["type"] == "IndexError"
    assert failure["frames"][-1]["cell"] == 4
    assert "IndexError" in failure["traceback"]


@pytest.mark.parametrize("sleeps", ["import time; time.sleep(1000)", "while True: pass"])
def test_a_class_that_never_answers_is_ended_and_told_where_it_was(
    asker: Make, sleeps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_backend.launch.search_process.WHERE_S", 60.0)  # on a busy machine it is slow to tell
    mine = asker(GOOD.replace("return {", f"{sleeps}\n        return {{"), answer_s=1.0)
    with pytest.raises(SearchFailed) as failed:
        mine.ask(1)
    assert "Mine.ask() did not answer within 1 s (it is at cell [4] line 13)" in failed.value.message
    assert children() == []


def test_a_cell_that_never_comes_to_an_end_is_ended_too(asker: Make) -> None:
    with pytest.raises(SearchFailed, match=r"Mine\(\) did not answer within 2 s"):
        asker("import time; time.sleep(1000)\n" + GOOD, start_s=2.0).ask(1)


def test_numbers_of_numpy_are_plain_ones(asker: Make) -> None:
    mine = asker(GOOD.replace("return {", 'import numpy; return {"lr": numpy.float64(0.5)} or {'))
    assert mine.ask(1) == {"lr": 0.5}


def test_a_class_that_forks_answers_once(asker: Make) -> None:
    mine = asker(GOOD.replace("return {", "import os; os.fork(); return {"))
    for _ in range(3):
        assert mine.ask(3) == {"lr": pytest.approx(1e-3)}
        assert mine.tell(3, {"lr": 1e-3}, 2, math.nan) == "stop"


def test_what_it_started_ends_with_it(asker: Make) -> None:
    starts = 'import subprocess; self.child = subprocess.Popen(["sleep", "1000"]); return {"lr": self.child.pid} or {'
    mine = asker(GOOD.replace("return {", starts))
    child = psutil.Process(mine.ask(1)["lr"])
    assert not gone(child)
    mine.close()
    until(lambda: gone(child), "its child has ended")


def test_it_ends_with_whoever_asks_even_in_the_midst_of_an_answer(asker: Make, tmp_path: Path) -> None:
    """A killed service closes nothing; the process sees only the end of its pipe."""
    asker(GOOD.replace("return {", "while True: pass\n        return {"))
    script = f"""
import os, sys, threading
from pathlib import Path
from kernel_backend.launch.search_process import ChildSearchProcess
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
settings = Settings.model_validate_json({SETTINGS.model_dump_json()!r})
space = Space.model_validate_json({SPACE.model_dump_json()!r})
mine = ChildSearchProcess(sys.executable, Path({str(tmp_path / "code0")!r}), Path.cwd(), settings, space, Path("log"))
mine.interval()
print(mine._child.pid, flush=True)
mine.ask(1)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tmp_path, env=env) as service:
        assert service.stdout is not None
        child = psutil.Process(int(service.stdout.readline()))
        time.sleep(0.2)
        service.send_signal(signal.SIGKILL)
    until(lambda: gone(child), "it has ended")
