"""Test a kernel in another environment than the service, which has only the core dependencies."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.notebook.cells import Run, error, kernel_of, printed
from tests.notebook.thin import make
from tests.support.world import DEFINITION, World

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("thin") / "venv")


@pytest.fixture
def thin(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    kernel_of(tmp_path, python, "thin")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    return "thin"


def test_the_environment_lacks_what_a_service_needs(python: Path):
    code = (
        "import daylight, jupyter_ext.magics.magics, importlib.util as u\n"
        "print(*map(u.find_spec, ['sqlalchemy', 'alembic']))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None"]


def test_where_no_service_ever_ran_it_says_how_to_start_one(thin: str, execute: Run):
    cell = execute("%load_ext daylight", "%dl list", kernel=thin)[1]
    assert error(cell).ename in ("ServiceUnreachable", "CannotStart")
    assert "daylight serve" in error(cell).evalue


def test_it_starts_the_service_that_another_environment_has_and_trains_in_its_own(
    thin: str, execute: Run, world: World, python: Path
):
    world.serve()
    world.kill_service()
    cell = execute("%load_ext daylight", f"%%dlsubmit --backend torch --batch-size 8{DEFINITION}", kernel=thin)[1]
    assert error(cell) is None, printed(cell)
    assert re.search(r"epoch 1/1 .* error \d", printed(cell))
    assert world.overview(1).experiment.python == str(python)
