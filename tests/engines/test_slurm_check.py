"""Test the check of a pool on a real Slurm: it explains what cannot start, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import platform
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernel_backend.engines.base import CheckContext
from kernel_backend.engines.slurm import probes, script
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from tests.support.disks import small_disk
from tests.support.slurm import Slurm


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def checked(
    home: Path, python: str = sys.executable, url: str = "http://127.0.0.1:1", **settings
) -> Sequence[PoolFinding]:
    pool = Pool(name="gpu", settings=PoolSettings(engine="slurm", **settings))
    context = CheckContext(python, str(home / "checkpoints"), (url,))
    found = asyncio.run(SlurmEngine(home, pool, "tests").check(context))
    for each in found:
        print("ok" if each.ok else "!!", each.name, "|", each.says, "|", each.todo)
    return found


def left(site: Slurm, home: Path) -> tuple[str, list[Path]]:
    """Return the remaining jobs and folders of checks."""
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


BAD = """
import platform, time
_time = time.time
time.time = lambda: _time() - 300
platform.python_version = lambda: "3.9.2"
"""


def test_a_node_of_another_python_and_time_a_full_disk_and_unknown_names_are_all_told(site, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(BAD)
    site.set_on("n2", PYTHONPATH=str(tmp_path))
    monkeypatch.setattr(socket, "gethostname", lambda: "nowhere.invalid")
    try:
        with small_disk(tmp_path / "home", 2**20) as home:
            found = checked(home, url="http://nowhere.invalid:7070", partition="main", extra=("--nodelist=n1,n2",))
    finally:
        site.set_on("n2")
    red = {each.name: f"{each.says} -> {each.todo}" for each in found if not each.ok}
    assert list(red) == ["versions", "home", "service", "clocks", "checkpoints", "host name"]
    assert f"n2 has Python 3.9.2, and here is {platform.python_version()} -> keep one environment" in red["versions"]
    assert re.match(r"n1, n2: .*home/check-\S+ is full or nearly: .* -> free space|n1, n2: .*home is full", red["home"])
    assert "n1, n2 cannot reach the service (http://nowhere.invalid:7070: its name has no address)" in red["service"]
    assert re.fullmatch(r"n1 \S+ s, n2 -30\d\.\d+ s -> set the clock of n2 by NTP .*", red["clocks"])
    assert "nowhere.invalid is not known to n1, n2: " in red["host name"]
    assert "/etc/hosts" in red["host name"]


def test_an_interpreter_that_a_node_lacks_is_named(site, home, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ntest "$SLURMD_NODENAME" != n2 || exec /nowhere/python\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found = {each.name: each for each in checked(home, str(python), partition="main", extra=("--nodelist=n1,n2",))}
    assert not found["probe"].ok
    assert "1 of 2 nodes did not answer, only n1 did: " in found["probe"].says
    assert found["probe"].todo
