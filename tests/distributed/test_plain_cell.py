"""Test a `%%dlrun` cell: it runs once unchanged, its values are returned, and after a kill it starts again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from gang import Trial

from kernel_backend.definition.plain import marked
from kernel_backend.model.artifacts import INDEX, LAST, VALUES, CellValues
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import ArtifactSaved, Note
from kernel_backend.snapshots.object_graph import JOB, unpickled
from tests.support import forkservers

pytestmark = pytest.mark.distributed

ABOVE = "offset = 40\n"
CELL = """
import os
import time
from pathlib import Path
from daylight import run
with open("begun", "a") as file:
    file.write("x")
while Path("hold").is_symlink():
    time.sleep(0.02)
made = [offset, 1]
shown = (each for each in made)
run.report(score=0.5)
sum(made) + 1
"""


class Plain(Trial):
    """Trial with its own home, for its artifacts, and a shared forkserver."""

    def job(self, resume_from: str | None = None) -> LaunchSpec:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        forkservers.share(home)
        return super().job(resume_from).model_copy(update={"home": str(home)})

    @property
    def values(self) -> dict[str, object]:
        """Return the values that the cell has given back."""
        return unpickled(io.BytesIO(self.stored(VALUES)), {}, JOB)

    def stored(self, name: str) -> bytes:
        """Return the content of an artifact."""
        (file,) = (self.folder / "home" / "artifacts").rglob(name)
        return file.read_bytes()


def plain(folder: Path, cell: str) -> Plain:
    return Plain(
        folder, ABOVE + marked(cell, ["made", "shown", "absent"]), slots=1, described={"roles_from": 2}, epochs=1
    )


def test_a_killed_cell_begins_anew_and_its_values_come_back(tmp_path: Path) -> None:
    trial = plain(tmp_path / "trial", CELL)
    first = trial.start(hold=0)
    first.wait(lambda: first.pids() and (trial.folder / "begun").exists())
    first.kill(0)
    assert trial.pinned() is None
    ran = trial.run()
    assert ran.codes == [0], ran.logs()
    assert (trial.folder / "begun").read_text() == "xx"
    assert trial.values == {LAST: 42, "made": [40, 1]}
    index = CellValues.model_validate_json(trial.stored(INDEX))
    assert (index.values, index.names) == ({LAST: "42", "made": "[40, 1]"}, ("made",))
    assert index.missing["shown"].startswith("a generator cannot be pickled (TypeError: ")
    notes = [each.text for each in ran.records if isinstance(each, Note)]
    assert any(each.startswith("--back absent") for each in notes)
    assert [each.name for each in ran.records if isinstance(each, ArtifactSaved)] == [VALUES, INDEX]
    assert "result: 42" in ran.logs()


def test_a_cell_gives_its_slot_back_when_told(tmp_path: Path) -> None:
    trial = plain(tmp_path / "trial", CELL)
    first = trial.start(hold=0)
    first.wait(lambda: first.pids() and (trial.folder / "begun").exists())
    assert first.tell("release").ended().codes == [85], first.logs()


def test_an_error_names_the_line_of_the_cell(tmp_path: Path) -> None:
    trial = plain(tmp_path / "trial", "x = 1\nx / 0")
    ran = trial.run()
    assert ran.codes != [0]
    assert ran.failures()[0].type == "ZeroDivisionError"
    assert "line 3" in ran.logs()
