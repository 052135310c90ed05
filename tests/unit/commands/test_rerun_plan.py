"""Test that packages and data that have changed are reported before a rerun starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_backend.commands.rerun import plan
from kernel_backend.data.declared import declare
from kernel_backend.differences.side import Side
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.search.records import Search
from kernel_backend.model.snapshot import DEFINITION, Environment, Snapshot
from kernel_backend.snapshots.archive import pack_snapshot
from kernel_backend.snapshots.environment import record
from tests.support.sides import side


class Service:
    """Service that has one experiment."""

    def __init__(self, submitted: Side) -> None:
        self.submitted, self.asked_by = submitted, "dave"

    def source(self, number: int) -> tuple[str, Snapshot]:
        return "", self.submitted.snapshot

    def experiment(self, number: int) -> Any:
        return SimpleNamespace(experiment=self.submitted.experiment)

    def me(self) -> Any:
        return SimpleNamespace(person=Person(name=self.asked_by))

    def archive(self, number: int) -> bytes:
        files = {name: data for name, data in self.submitted.files.items() if name != DEFINITION}
        return pack_snapshot(self.submitted.files[DEFINITION].decode(), self.submitted.snapshot, files)[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "home"))
    made = tmp_path / "leslie"
    made.mkdir()
    (made / "a.csv").write_text("1")
    return made


def service(folder: Path, environment: Environment | None = None, data: str | None = None, **about: Any) -> Any:
    """Return a service whose experiment declared `data`: by default the whole folder, by its absolute path."""
    declared = declare([data or str(folder)], folder.parent)
    kept = {"environment": environment or record(), "data": declared.data}
    return Service(side(files=declared.files, snapshot=kept, cwd=str(folder.parent), **about))


def test_the_same_packages_and_data_are_passed_over(folder: Path):
    planned = plan(service(folder), 41, {"lr": 0.1}, {"epochs": 2})
    assert planned.notes == []
    assert planned.asked.params == {"lr": 0.1}
    assert planned.asked.config == {"epochs": 2, "steps": None, "env": "current"}


def test_whose_code_it_is_is_said_where_it_is_anothers(folder: Path):
    foreign = service(folder)
    foreign.asked_by = "danielle"
    assert plan(foreign, 41, {}, {}).notes == ["#41 is dave's: it is dave's code that trains, as yours"]


def test_other_packages_lead_to_the_locked_environment(folder: Path):
    here = record()
    other = here.model_copy(update={"distributions": here.distributions | {"torch": "1.0"}})
    planned = plan(service(folder, other), 41, {}, {})
    assert planned.asked.config == {"env": "locked"}
    assert planned.notes[0].startswith("the packages here are not those of #41 (torch 1.0 -> ")
    assert plan(service(folder, other), 41, {}, {"env": "current"}).asked.config == {"env": "current"}


def test_data_that_has_changed_is_read_as_it_was_where_its_path_can_be_led_elsewhere(folder: Path):
    kept = service(folder, data="leslie")
    (folder / "b.csv").write_text("2")
    planned = plan(kept, 41, {}, {})
    assert planned.notes == [f"{folder}: 1 file was added (b.csv), since #41: it is read as it was, by links"]
    place = planned.asked.config["data_at"]["leslie"]
    assert [path.name for path in Path(place).iterdir()] == ["a.csv"]
    by_name = plan(service(folder, params={"root": str(folder), "lr": 0.1}), 41, {"lr": 0.2}, {})
    assert by_name.asked.params == {"lr": 0.2}
    (folder / "b.csv").unlink()
    assert plan(kept, 41, {}, {}).asked.config == {"env": "current"}


def test_a_hyperparameter_that_names_the_data_leads_to_it(folder: Path):
    kept = service(folder, params={"root": str(folder), "lr": 0.1})
    kept.submitted.files[DEFINITION] = f"def train_data(root='{folder}', lr=0.1): ...".encode()
    (folder / "b.csv").write_text("2")
    planned = plan(kept, 41, {"lr": 0.2}, {})
    place = planned.asked.config["data_at"][str(folder)]
    assert planned.asked.params == {"lr": 0.2, "root": place}
    assert [path.name for path in Path(place).iterdir()] == ["a.csv"]
    again = service(folder, params=planned.asked.params, config={"data_at": {str(folder): place}})
    folder.joinpath("b.csv").unlink()
    assert plan(again, 42, {}, {}).asked.params == {}  # where that was read it is as it was


def test_a_rerun_of_a_rerun_knows_where_data_was_read(folder: Path, tmp_path: Path):
    moved = folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    (folder / "a.csv").write_text("1")
    data_at = {"leslie": str(moved)}
    again = service(folder, data="leslie", config={"data_at": data_at})
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    planned = plan(again, 42, {}, {})
    assert (planned.notes, planned.asked.config) == ([], {"env": "current"})  # data_at stays as it is
    folder.mkdir()
    (moved / "a.csv").rename(folder / "a.csv")
    planned = plan(again, 42, {}, {})
    assert (planned.notes, planned.asked.config["data_at"]) == ([], {})  # it is back


def test_data_that_cannot_be_as_it_was_is_named(folder: Path):
    kept = service(folder)
    (folder / "b.csv").write_text("2")
    (note,) = plan(kept, 41, {}, {}).notes
    said = "the code itself names the path, which cannot lead elsewhere"
    assert note == f"data is not as it was: {folder}: 1 file was added (b.csv); {said}"
    (folder / "a.csv").write_text("9")
    (note,) = plan(kept, 41, {}, {}).notes
    assert "the bytes of 1 of 1 files are not kept anywhere (a.csv)" in note
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    (note,) = plan(kept, 41, {}, {}).notes
    assert note.startswith(f"data is not as it was: --data {folder} is not there")


def test_a_path_within_the_code_is_not_led_elsewhere_though_it_was_declared_by_a_relative_one(folder: Path):
    kept = service(folder, data="leslie")
    kept.submitted.files[DEFINITION] = f"root = '{folder}'".encode()
    (folder / "b.csv").write_text("2")
    planned = plan(kept, 41, {}, {})
    assert planned.notes[0].endswith("the code itself names the path, which cannot lead elsewhere")
    assert "data_at" not in planned.asked.config


def test_a_person_says_where_data_is_now(folder: Path, tmp_path: Path):
    kept = service(folder, data="leslie")
    moved = folder.rename(tmp_path / "elsewhere")
    planned = plan(kept, 41, {}, {}, data=[f"leslie={moved}"])
    assert (planned.notes, planned.asked.config["data_at"]) == ([], {"leslie": str(moved)})
    (moved / "b.csv").write_text("2")
    planned = plan(kept, 41, {}, {}, data=[f"{folder}={moved}"])  # by its path of then
    assert planned.notes == [f"{moved}: 1 file was added (b.csv), since #41: it is read as it was, by links"]
    (moved / "a.csv").write_text("9")
    planned = plan(kept, 41, {}, {}, data=[f"leslie={moved}"])
    assert planned.asked.config["data_at"] == {"leslie": str(moved)}
    assert "the bytes of 1 of 1 files are not kept anywhere (a.csv)" in planned.notes[0]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "leslie",
            "--data leslie: a rerun takes the new place of the data as --data leslie=/mnt/leslie; declared",
        ),
        ("lesley=/tmp", "--data lesley=/tmp: a rerun takes .*; declared is: leslie"),
        ("leslie=/nowhere", "--data /nowhere is not there"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused(folder: Path, word: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        plan(service(folder, data="leslie"), 41, {}, {}, data=[word])


SEARCH = {"method": "asha", "trials": 12, "eta": 3, "parallel": 2}


@pytest.mark.parametrize(
    ("other", "then"),
    [
        ({"trials": 64}, {**SEARCH, "trials": 64}),
        ({"method": "random"}, {"method": "random", "parallel": 2}),
        ({"method": "asha", "stopping": True}, {**SEARCH, "stopping": True}),
    ],
)
def test_a_search_is_the_one_of_then_but_for_what_is_asked(folder: Path, other: Any, then: Any):
    planned = plan(service(folder, config={"search": SEARCH}), 41, {}, {"search": other})
    assert planned.asked.config["search"] == Search(**then).to_json()


def test_what_belongs_to_a_search_is_refused_where_there_was_none(folder: Path):
    with pytest.raises(InvalidRequest, match="--first-rung belongs to a search, and there was none"):
        plan(service(folder), 41, {}, {"search": {"first_rung": 2}})


def test_the_longest_time_of_a_rerun_is_the_searchs_where_it_searches(folder: Path):
    searched = service(folder, config={"search": Search(method="asha", trials=5)})
    whole = plan(searched, 41, {}, {"max_time": 60.0}).asked.config
    assert (whole["search"]["max_time"], whole["search"]["trials"], whole["max_time"]) == (60.0, 5, None)
    assert plan(searched, 41, {}, {"max_time": 60.0}, trial=2).asked.config["max_time"] == 60.0
    assert plan(service(folder), 41, {}, {"max_time": 60.0}).asked.config["max_time"] == 60.0
