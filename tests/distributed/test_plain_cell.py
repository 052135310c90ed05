"""Test a `%%dlrun` cell: it runs once unchanged, its values are returned, and after a kill it starts again."""

from __future__ import annotations

from pathlib import Path

import pytest
from gang import Trial

from jupyter_ext.job.result import result
from kernel_backend.definition.plain import RESULT, marked
from kernel_backend.errors import NotFound
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import ArtifactSaved, Note
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
shown = lambda: None
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

    def kept(self, name: str | None = None) -> object:
        files = [each for each in (self.folder / "home" / "artifacts").rglob("*") if each.name.startswith(RESULT)]
        return result(files[0].read_bytes(), name)


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
    assert trial.kept() == 42
    assert trial.kept("made") == [40, 1]
    with pytest.raises(NotFound, match="shown cannot be brought back"):
        trial.kept("shown")
    with pytest.raises(NotFound, match="there are: made, shown"):
        trial.kept("other")
    notes = [each.text for each in ran.records if isinstance(each, Note)]
    assert any(each.startswith("--back absent") for each in notes)
    assert [each.name for each in ran.records if isinstance(each, ArtifactSaved)] == [RESULT]
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
