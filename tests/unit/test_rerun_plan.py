"""Before a rerun begins it is said which packages and which data are not as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_ext.again import plan
from kernel_backend.data.declared import declare
from kernel_backend.model.snapshot import Environment, Snapshot
from kernel_backend.snapshots.archive import pack_snapshot
from kernel_backend.snapshots.environment import record


class Service:
    """Holds one snapshot."""

    def __init__(self, snapshot: Snapshot, files: dict[str, bytes]) -> None:
        self.snapshot, self.files = snapshot, files

    def source(self, number: int) -> tuple[str, Snapshot]:
        return "", self.snapshot

    def archive(self, number: int) -> bytes:
        return pack_snapshot("", self.snapshot, self.files)[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "home"))
    made = tmp_path / "leslie"
    made.mkdir()
    (made / "a.csv").write_text("1")
    return made


def service(folder: Path, environment: Environment | None = None) -> Any:
    declared = declare([str(folder)], folder)
    described = Snapshot(
        version="0",
        numerics=3,
        pieces=(),
        roles_from=1,
        environment=environment or record(),
        data=declared.data,
    )
    return Service(described, declared.files)


def test_the_same_packages_and_data_are_passed_over(folder: Path):
    planned = plan(service(folder), 41, {"lr": 0.1}, {"epochs": 2})
    assert planned.notes == []
    assert planned.asked.params == {"lr": 0.1}
    assert planned.asked.config == {"epochs": 2, "steps": None, "env": "current"}


def test_other_packages_lead_to_the_locked_environment(folder: Path):
    here = record()
    other = here.model_copy(update={"distributions": here.distributions | {"torch": "1.0"}})
    planned = plan(service(folder, other), 41, {}, {})
    assert planned.asked.config == {"env": "locked"}
    assert planned.notes[0].startswith("the packages here are not those of #41 (torch 1.0 -> ")
    assert plan(service(folder, other), 41, {}, {"env": "current"}).asked.config == {"env": "current"}


def test_data_that_has_changed_or_is_gone_is_named(folder: Path):
    kept = service(folder)
    (folder / "b.csv").write_text("2")
    assert plan(kept, 41, {}, {}).notes == [f"{folder}: 1 file was added (b.csv), since #41"]
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    (note,) = plan(kept, 41, {}, {}).notes
    assert f"--data {folder} is not there" in note
