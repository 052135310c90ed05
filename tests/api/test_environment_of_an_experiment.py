"""Test how the API and the command line show the environment of an experiment."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version

import pytest

from kernel_backend.cli import doctor, main
from kernel_backend.environments import uv
from kernel_backend.environments.lock import Lock
from kernel_backend.errors import NoEnvironment
from tests.api.served import submit

LOCK = Lock(text="six==1.17.0 \\\n    --hash=sha256:ab\n", unlocked={"mine": "editable: its sources travel"})


@pytest.fixture
def locked(served, client):
    """Provide an experiment whose environment has a lock."""
    number = submit(client).experiment.number
    folder = served.home / "environments" / client.environment(number).id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock.json").write_text(LOCK.model_dump_json())
    return number


def test_before_it_is_locked_that_is_said(client):
    found = client.environment(submit(client).experiment.number)
    assert (found.lock, found.locked, found.unlocked, found.built) == (None, 0, {}, None)


def test_the_lock_comes_with_what_is_not_in_it(client, locked):
    found = client.environment(locked)
    assert (found.lock, found.locked, found.unlocked) == (LOCK.text, 1, LOCK.unlocked)
    assert found.recorded.id == found.id


def test_a_locked_environment_that_can_never_be_is_refused_at_once(client, monkeypatch):
    with pytest.raises(NoEnvironment, match="does not say which Daylight it ran with: use --env current"):
        submit(client, env="locked")
    assert client.experiments() == []


def test_the_command_line_shows_what_it_ran_with_and_prints_the_lock(service, file, capsys, monkeypatch):
    # What uv has cached of this machine's packages would do for a lock, which the service might write over ours.
    monkeypatch.setenv("UV_CACHE_DIR", str(service.home / "empty"))
    assert main(["submit", str(file), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["env", "1"]) == 0
    told = capsys.readouterr().out
    assert f"CPython {platform.python_version()} on Linux" in told
    assert f"pydantic {version('pydantic')}" not in told
    assert f"torch {version('torch')}" in told
    assert main(["env", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recorded"]["distributions"]["pydantic"] == version("pydantic")
    folder = service.home / "environments" / found["id"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock.json").write_text(LOCK.model_dump_json())
    assert main(["env", "1", "--lock"]) == 0
    assert capsys.readouterr().out == LOCK.text
    assert main(["env", "1"]) == 0
    told = capsys.readouterr().out
    assert "1 package locked by hash, and Daylight's own wheel" in told
    assert "not locked: mine, editable: its sources travel" in told


def test_a_lock_that_is_not_there_yet_is_said_to_be_missing(service, file, capsys, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(service.home / "empty"))
    assert main(["submit", str(file), "--quiet"]) == 0
    assert main(["env", "1", "--lock"]) == 2
    assert "not locked yet: that needs uv and a package index" in capsys.readouterr().err


def test_doctor_says_what_becomes_of_environments(monkeypatch):
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    assert doctor._uv().says == "locks environments, and builds them for --env locked"
    monkeypatch.setenv("UV_OFFLINE", "1")
    assert doctor._uv().todo == "unset UV_OFFLINE"
    monkeypatch.setattr(uv, "find", lambda: None)
    assert "pip install uv" in doctor._uv().todo
