"""The check of a pool on a real Slurm: what cannot start is told, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernel_backend.engines.base import CheckContext
from kernel_backend.engines.slurm import probes, script
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from tests.support.slurm import Slurm


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def checked(home: Path, python: str = sys.executable, **settings) -> Sequence[PoolFinding]:
    pool = Pool(name="gpu", settings=PoolSettings(engine="slurm", **settings))
    context = CheckContext(python, str(home / "checkpoints"), ("http://127.0.0.1:1",))
    found = asyncio.run(SlurmEngine(home, pool, "tests").check(context))
    for each in found:
        print("ok" if each.ok else "!!", each.name, "|", each.says, "|", each.todo)
    return found


def left(site: Slurm, home: Path) -> tuple[str, list[Path]]:
    """The jobs of checks that are still there, and their folders."""
    return site.run("squeue", "-h", "-t", "PD,R", "-o", "%j"), list(home.glob("check-*"))


def test_a_partition_that_is_not_there_ends_the_check(site, home):
    *good, last = checked(home, partition="nope")
    assert [(each.name, each.ok) for each in good] == [("engine", True), ("user", True)]
    assert (last.name, last.ok, last.says) == ("partition", False, "nope: Slurm knows no nodes of it")
    assert "sinfo -s" in last.todo


def test_what_srun_refuses_is_told_with_what_to_change(site, home):
    *_, last = checked(home, constraint="faster")
    assert (last.name, last.ok, last.says) == ("probe", False, "Slurm: Invalid feature specification")
    assert "constraint" in last.todo
    assert left(site, home) == ("", [])


def test_nodes_that_are_all_busy_end_the_check(site, home, monkeypatch):
    for module in (script, probes):
        monkeypatch.setattr(module, "PROBE_WAIT_S", 4)
    other = site.run("sbatch", "--parsable", "--nodes=3", "--exclusive", "--wrap=sleep 600", "--output=/dev/null")
    try:
        site.wait(lambda: "RUNNING" in site.run("squeue", "-h", "-j", other.strip(), "-o", "%T"), "another's job runs")
        *_, last = checked(home, partition="main")
        expected = r"no 2 nodes of main became free within 4 s (Slurm: Resources): the rest was not checked"
        assert (last.name, last.ok, last.says) == ("probe", False, expected)
        assert last.todo == "try again when `sinfo -p main` shows idle nodes"
        assert list(home.glob("check-*")) == []
    finally:
        site.run("scancel", other.strip())


def test_an_interpreter_without_daylight_is_named(site, home, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"$0: No module named 'kernel_backend'\" >&2; exit 1\n")
    python.chmod(0o755)
    *_, last = checked(home, str(python))
    assert (last.name, last.ok) == ("versions", False)
    assert "No module named 'kernel_backend'" in last.says
    assert last.todo == "install daylight into that environment"


def test_a_service_that_no_node_reaches_and_one_node_alone(site, home):
    found = {each.name: each for each in checked(home, partition="small")}
    assert [name for name, each in found.items() if not each.ok] == ["service"]
    assert "n1 cannot reach the service (http://127.0.0.1:1: Connection refused)" in found["service"].says
    assert found["network"].says == "not checked: the pool has one node to use"
    assert left(site, home) == ("", [])
