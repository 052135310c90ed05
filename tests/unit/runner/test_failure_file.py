"""Test a rank's records and exit where files are missing, disks full or threads stuck."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_backend.launch.spool import SpoolReader
from kernel_backend.model.reports import Note
from kernel_backend.runner.ipc import Spool
from tests.support.spools import read_after

ROOT = Path(__file__).parents[3]


def say(spool: Spool, *numbers: int) -> None:
    for number in numbers:
        spool.say(Note(text=f"note {number}"))


def numbers(path: Path) -> list[int]:
    return [record.number for record in read_after(path, 0)]


def descriptor_of(path: Path) -> int:
    """Return the file descriptor with which this process has the file open."""
    (found,) = [fd for fd in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{fd}") == str(path)]
    return int(found)


def test_a_spool_that_is_gone_from_under_a_rank_stops_nothing_and_loses_nothing_when_it_is_back(tmp_path):
    path = tmp_path / "spool"
    spool = Spool(path, rank=0)
    say(spool, 1)
    descriptor = descriptor_of(path)
    kept = os.dup(descriptor)
    os.close(descriptor)
    say(spool, 2, 3)  # every call on the file fails now, as it does on a network disk that has forgotten it
    os.dup2(kept, descriptor)
    os.close(kept)
    say(spool, 4)
    assert numbers(path) == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(5))
def test_wherever_a_full_disk_tears_the_lines_each_record_is_read_once_and_in_order(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    real = os.write

    def short(descriptor: int, data: bytes) -> int:
        if rng.random() < 0.3:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: rng.randrange(1, 2 * len(data))])

    path = tmp_path / "spool"
    spool, reader, found = Spool(path, rank=0), SpoolReader(path), []
    with monkeypatch.context() as torn:
        torn.setattr("os.write", short)
        for number in range(100):
            say(spool, number)
            found += [record.number for record in reader.read().records]
    say(spool, 100)
    found += [record.number for record in reader.read().records]
    assert found == numbers(path) == list(range(1, 102)), f"seed {seed}"


def test_what_cannot_be_read_now_is_read_later_and_none_of_it_twice(tmp_path):
    path = tmp_path / "spool"
    spool, reader = Spool(path, rank=0), SpoolReader(path)
    say(spool, 1, 2)
    assert [record.number for record in reader.read().records] == [1, 2]
    say(spool, 3)
    path.rename(tmp_path / "aside")
    path.mkdir()  # an error when it is read, whoever reads it
    with pytest.raises(IsADirectoryError):
        reader.read()
    path.rmdir()
    (tmp_path / "aside").rename(path)
    assert [record.number for record in reader.read().records] == [3]


@pytest.mark.parametrize("status", [0, 85])
def test_a_thread_of_the_users_that_never_ends_does_not_keep_a_rank_for_ever(status):
    code = (
        "import threading, time, kernel_backend.runner.__main__ as runner\n"
        "runner.LEAVE_S = 0.2\n"
        "threading.Thread(target=time.sleep, args=(3600,)).start()\n"
        f"runner.leave({status})\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert ended.returncode == status


LEAVING = """
import atexit, concurrent.futures, ctypes, io, pathlib, sys, threading, time
import kernel_backend.runner.__main__ as runner

def late():
    time.sleep(0.2)
    sys.stdout.write("thread\\n")  # print() writes the end of the line apart, and another thread may come between

class Clumsy:
    def __del__(self):
        print("taken apart")

clumsy = Clumsy()
held = open("held", "w")
held.write("held")
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(sys.stdout.write, "pool\\n")
threading.Thread(target=late).start()
atexit.register(print, "handler")
atexit.register(lambda: 1 / 0)
ctypes.CDLL(None).printf(b"native\\n")
runner.leave(%d)
"""


@pytest.mark.parametrize("status", [0, 85])
def test_what_the_user_has_begun_comes_to_its_end_before_a_rank_leaves_and_python_takes_nothing_apart(tmp_path, status):
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING % status],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == status
    assert sorted(ended.stdout.split("\n")) == ["", "handler", "native", "pool", "thread"]
    assert "ZeroDivisionError" in ended.stderr
    assert (tmp_path / "held").read_text() == "held"
