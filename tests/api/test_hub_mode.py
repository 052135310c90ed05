"""Test how clients and the service's program behave on a hub, without running a hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.errors import ServiceUnreachable
from tests.support.world import World

URL = "http://127.0.0.1:9/services/daylight"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set the environment variables of a notebook server."""
    monkeypatch.setenv("DAYLIGHT_URL", f"{URL}/")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-servers-own")
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("told")
def test_a_notebook_server_of_a_hub_has_the_hubs_service_and_starts_none(tmp_path: Path) -> None:
    assert discovery.find() == discovery.start() == discovery.Address(URL, "the-servers-own")
    assert not (tmp_path / "home").exists()


@pytest.mark.usefixtures("told")
def test_a_home_that_is_named_is_that_home(tmp_path: Path) -> None:
    assert discovery.find(tmp_path) is None


@pytest.mark.usefixtures("told")
def test_a_token_that_is_given_by_hand_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYLIGHT_TOKEN", "mine")
    assert discovery.find() == discovery.Address(URL, "mine")


@pytest.mark.usefixtures("told")
def test_who_does_not_reach_the_hubs_service_is_not_told_to_start_one() -> None:
    with pytest.raises(ServiceUnreachable, match=f"the hub runs it, at {URL}/: try again later, or tell its admins"):
        Client(discovery.start, patience=0.0).nodes()


def test_only_a_hub_can_run_the_service_of_a_hub(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTERHUB_")}
    done = subprocess.run(
        [sys.executable, "-m", "kernel_backend", "--hub", f"--home={tmp_path}"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "daylight: --hub: this process is no service of a JupyterHub with a url of its own: "
        "its configuration says how, with jupyter_ext.hub.daylight(c)"
    )


def test_a_service_that_was_left_behind_is_ended(tmp_path: Path) -> None:
    world = World(tmp_path / "home", shared_forkserver=True)
    world.serve()
    discovery.end(tmp_path / "home")
    assert discovery.find(tmp_path / "home") is None
    with discovery.lock(tmp_path / "home") as ours:
        assert ours
    discovery.end(tmp_path / "home")  # where none is, nothing happens
    world.close()
