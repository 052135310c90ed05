"""Test that models of all forms leave: what is exported loads and computes the same where no Daylight is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from kernel_backend.client import Client
from kernel_backend.commands.exports.model import export_trained
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.model.checkpoints import CheckpointSelector
from kernel_backend.model.ids import Reference
from tests.support.world import World
from tests.torture.model import FORMS

pytestmark = pytest.mark.distributed

ANY = CheckpointSelector(latest=False, best=False, step=None)


@pytest.fixture(scope="module")
def numbers(world: World) -> dict[str, int]:
    """Provide an ended training of each form, by its name."""
    made = {
        name: world.submit(
            form.source, contract=CONTRACT, **form.options | {"epochs": 1, "slots": 1 + (name == "fsdp2")}
        ).experiment.number
        for name, form in FORMS.items()
    }
    for number in made.values():
        overview = world.ended(number)
        assert overview.experiment.state == "completed", overview
    return made


def only(folder: Path, names: Iterator[str]) -> Path:
    """Fill a folder with links to the files of these distributions, so that it is a site of its own."""
    folder.mkdir()
    for name in names:
        found = distribution(name)
        for file in found.files or []:
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_a_model_opens_where_only_its_lock_is(form: str, world: World, numbers: dict[str, int], tmp_path: Path) -> None:
    client = Client.connect(start=False, home=world.home)
    found = export_trained(client, Reference(numbers[form]), tmp_path / form, ANY)
    assert found.proof.startswith("bit-equal on "), found.proof
    lock = (found.folder / "requirements.lock").read_text().splitlines()
    site = only(tmp_path / "site", (line.partition("==")[0] for line in lock if not line.startswith("#")))
    program = "import sys, runpy; sys.path.append(sys.argv.pop()); runpy.run_path('check.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(site)],
        cwd=found.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == found.proof, done.stderr
