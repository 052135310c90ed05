"""Test that the quickstart notebook runs from top to bottom in a real kernel, including a killed worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from tests.support.world import until

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"

pytestmark = [pytest.mark.notebook, pytest.mark.distributed]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Provide the output of `make demo`, and the folder that it used."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run([sys.executable, DEMO, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout, folder


def test_the_trained_model_knows_digits_that_it_has_never_seen(demo: tuple[str, Path]) -> None:
    notebook = nbformat.read(demo[1] / "quickstart.executed.ipynb", as_version=4)
    # Joined: what is printed at once may come in two pieces, the end of its line by itself.
    text = "".join(each.text for each in notebook.cells[-1].outputs if each.get("name") == "stdout")
    assert text.endswith("of 297 digits that it has never seen\n")
    assert float(text.split("%")[0]) >= 93


def test_the_killed_experiment_went_on_from_a_checkpoint_in_its_second_attempt(demo: tuple[str, Path]) -> None:
    assert "killed worker process" in demo[0]
    assert "attempt 2 went on from checkpoint" in demo[0]


def test_nothing_is_left_running(demo: tuple[str, Path]) -> None:
    until(lambda: not of(demo[1]), "what was killed last has gone")


def of(folder: Path) -> list[psutil.Process]:
    """Return the processes that run in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            found += [process] if str(folder) in process.environ().get("DAYLIGHT_HOME", "") else []
        except psutil.Error:
            continue
    return found
