"""Test the notes about packages that a user gets before an attempt starts."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_backend.environments.lock import Lock
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.cluster.pools import PoolSettings
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.snapshot import Environment, Snapshot
from kernel_backend.model.states import ExperimentState
from kernel_backend.service.environments import AGAIN_S, FRESH_S, Preparation
from kernel_backend.snapshots.archive import Archive, pack_snapshot
from kernel_backend.snapshots.environment import record
from kernel_backend.snapshots.installed import own_root
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(own_root()))


def experiment(
    home: Path, environment: Environment, packages: tuple[str, ...] = (), **fields: object
) -> tuple[Preparation, Experiment]:
    """Provide a service's environment preparation, and an experiment whose snapshot has this environment."""
    archive = Archive(home / "snapshots")
    snapshot = Snapshot(version="", numerics=1, pieces=(), roles_from=1, environment=environment, packages=packages)
    id, data = pack_snapshot("", snapshot)
    archive.put(id, data)
    facts = {"number": 1, "name": "", "state": ExperimentState.ACTIVE, "owner": "a", "group": "a", "params": {}}
    facts |= {"snapshot": id, "python": sys.executable, "cwd": "/", "notebook": None, "created_at": time.time()}
    made = Experiment.model_validate(facts | {"config": Config()} | fields)
    return Preparation(archive, SingleWorkspace(OwnWorkspace(home)), lambda pool: None, lambda: None), made


def older() -> Environment:
    found = record()
    return found.model_copy(update={"distributions": found.distributions | {"torch": "1.0", "zzz": "1"}})


def test_packages_that_have_changed_since_are_named_at_a_restart_and_in_a_rerun(tmp_path: Path):
    preparation, made = experiment(tmp_path, older())
    told = preparation.note(made, 1)
    assert told == preparation.note(made.model_copy(update={"rerun_of": 7}), 0)
    assert told is not None
    assert told.startswith("not the packages of its snapshot: torch 1.0 -> 2")
    assert told.endswith("zzz 1 -> missing")


def test_nothing_is_said_right_after_a_submission_nor_where_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    preparation, made = experiment(tmp_path, older())
    now = [made.created_at]
    monkeypatch.setattr("kernel_backend.service.environments.time", SimpleNamespace(time=lambda: now[0]))
    assert preparation.note(made, 0) is None
    now[0] += FRESH_S + 1
    assert preparation.note(made, 0) == preparation.note(made, 1) is not None
    preparation, made = experiment(tmp_path, record())
    assert preparation.note(made, 1) is None


def test_an_interpreter_that_is_gone_is_said_to_be(tmp_path: Path):
    preparation, made = experiment(tmp_path, record(), python="/nowhere/python")
    assert preparation.note(made, 1) == (
        "the interpreter /nowhere/python is gone: make it again, or run with --env locked"
    )


def test_what_a_locked_environment_lacks_is_told_in_a_few_words(tmp_path: Path):
    preparation, made = experiment(tmp_path, record(), config=Config(env="locked"))
    assert preparation.note(made, 0) is None
    folder = tmp_path / "environments" / record().id
    folder.mkdir(parents=True)
    lock = Lock(text="", unlocked={f"p{n}": "editable" for n in range(7)})
    (folder / "lock.json").write_text(lock.model_dump_json())
    assert preparation.note(made, 0) == (
        "not in the locked environment: p0 (editable), p1 (editable), p2 (editable), p3 (editable), p4 (editable) "
        "and 2 more"
    )


def test_a_locked_environment_of_another_python_is_told(tmp_path: Path):
    preparation, made = experiment(tmp_path, record(), config=Config(env="locked"))
    folder = tmp_path / "environments" / record().id / "venv"
    folder.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.99\n")
    told = preparation.note(made, 0)
    assert told == f"the locked environment has Python 3.11.99, the snapshot was made with {record().python}"
    (folder / "pyvenv.cfg").write_text(f"version = {record().python}\n")
    assert preparation.note(made, 0) is None


def test_a_lock_that_failed_is_tried_again_by_a_submission_after_a_minute_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    preparation, made = experiment(tmp_path, record())
    now, tries = [0.0], []

    def fails(*_: object, **__: object) -> Lock:
        tries.append(now[0])
        raise NoEnvironment("no index can be reached")

    service = "kernel_backend.service.environments"
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setattr("kernel_backend.environments.lock.make", fails)
    monkeypatch.setattr(f"{service}._in_thread", lambda work, *args: work(*args))
    monkeypatch.setattr(f"{service}.time", SimpleNamespace(monotonic=lambda: now[0]))
    for now[0] in (0.0, AGAIN_S - 1, AGAIN_S, AGAIN_S + 1):
        preparation.keep("a", made.snapshot, sys.executable)
    assert tries == [0.0, AGAIN_S]
    monkeypatch.setenv("UV_OFFLINE", "1")
    now[0] *= 3
    preparation.keep("a", made.snapshot, sys.executable)
    assert tries == [0.0, AGAIN_S]  # it needs an index: only --env locked asks for it where there is none


ELSEWHERE = "/opt/notebooks/bin/python"  # of a notebook server that shares no path with the service


def test_an_interpreter_that_is_not_here_is_replaced_by_the_services_and_other_versions_are_named(tmp_path: Path):
    preparation, made = experiment(tmp_path, older(), packages=("json", "pytest"))
    assert preparation.interpreter("a", made.snapshot, sys.executable, "", False) == sys.executable
    assert preparation.note(made, 0) is None
    assert preparation.interpreter("a", made.snapshot, ELSEWHERE, "", False) == sys.executable
    told = preparation.note(made, 0)
    assert told is not None
    assert told.startswith("not the packages of its snapshot: torch 1.0 -> ")
    assert "zzz" not in told  # the code does not import it
    assert preparation.note(made, 0) is None


def test_packages_that_the_services_interpreter_lacks_are_named_before_anything_is_queued(tmp_path: Path):
    preparation, made = experiment(tmp_path, record(), packages=("json", "zzz"))
    with pytest.raises(NoEnvironment) as refused:
        preparation.interpreter("a", made.snapshot, ELSEWHERE, "", False)
    assert refused.value.message == (
        f"the notebook's Python, {ELSEWHERE}, is not on the machine where trainings run, and the one there, "
        f"{sys.executable}, lacks zzz: have that installed there, or submit with --env locked"
    )
    assert preparation.interpreter("a", made.snapshot, ELSEWHERE, "", True) == sys.executable


def test_no_name_that_a_client_sends_is_imported_by_the_service(tmp_path: Path):
    preparation, made = experiment(tmp_path, record(), packages=("this.zen", "../this", "json"))
    assert preparation.interpreter("a", made.snapshot, ELSEWHERE, "", False) == sys.executable
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    ("settings", "python"),
    [
        (PoolSettings(engine="slurm"), ELSEWHERE),
        (PoolSettings(engine="slurm", python="/sw/bin/python"), "/sw/bin/python"),
        (PoolSettings(engine="kubernetes", image="i", python="/sw/bin/python"), ELSEWHERE),
    ],
)
def test_a_pool_has_its_own_interpreter_or_the_submissions(tmp_path: Path, settings: PoolSettings, python: str):
    _, made = experiment(tmp_path, record(), packages=("zzz",))
    workspaces, archive = SingleWorkspace(OwnWorkspace(tmp_path)), Archive(tmp_path / "snapshots")
    preparation = Preparation(archive, workspaces, lambda pool: settings, lambda: None)
    assert preparation.interpreter("a", made.snapshot, ELSEWHERE, "pool", False) == python
