import itertools
import os
import subprocess

import psutil
import pytest
from psutil import _pslinux

from kernel_backend import process_identity


@pytest.fixture
def boots(monkeypatch):
    """Return a function that sets the boot times that psutil reports, one for each call."""
    boot = psutil.boot_time()

    def told(*off):
        looks = itertools.chain(off, itertools.repeat(off[-1]))
        monkeypatch.setattr(_pslinux, "boot_time", lambda: boot + next(looks))  # which create_time() asks as well

    return told


def test_a_process_is_known_by_pid_and_start():
    since = process_identity.started(os.getpid())
    assert process_identity.alive(os.getpid(), since)
    assert not process_identity.alive(os.getpid(), since - 60)
    assert not process_identity.alive(os.getpid(), since + 60)


def test_who_has_gone_is_not_alive_and_neither_is_a_zombie():
    process = subprocess.Popen(["sleep", "60"])
    since = process_identity.started(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    assert not process_identity.alive(process.pid, since)
    process.wait()
    assert not process_identity.alive(process.pid, since)


def test_a_clock_that_is_set_makes_nobody_dead(boots):
    since = process_identity.started(os.getpid())
    boots(3600)
    assert process_identity.alive(os.getpid(), since)


@pytest.mark.parametrize("looks", [(0, 1), (1, 0), (0, 0, 1), (0, 1, 1, 0)])
def test_a_boot_that_moves_by_a_second_between_two_looks_makes_nobody_dead(boots, looks):
    since = process_identity.started(os.getpid())
    boots(*looks)
    assert process_identity.started(os.getpid()) == pytest.approx(
        since, rel=0, abs=0.01
    )  # whatever the machine's uptime
    assert process_identity.alive(os.getpid(), since)
