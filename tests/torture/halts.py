"""Tests that run while processes of theirs are halted at random: what then fails hangs on somebody's speed.

    python -m tests.torture.halts [--seed 0] [--seconds 0.6] [what pytest is told ...]

A few times a second a random one of the processes that the tests have started, or of those that run them, is stopped
for `--seconds` on the average and three seconds at most: each kind is as likely, however many there are of it. It does
nothing that a busy machine may not do. Unless pytest is told something else, all tests run that have processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict

import psutil

MARK = "DAYLIGHT_TESTS_HALTED"  # in the environment of all processes that may be
LONGEST_S = 3.0
PAUSE_S = 0.3  # on the average, between two halts
KINDS = ("chrome", "postgres", "kernel_backend.launch", "kernel_backend", "ipykernel", "jupyterhub", "jupyter")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-o", "timeout=900")
ALL = ("tests", "--ignore=tests/unit")


def halted(mark: str, runs: int) -> dict[str, list[psutil.Process]]:
    """Return the processes that may be halted, by kind.

    Excluded are pytest itself (pid `runs`) and processes that a test has stopped.
    """
    found = defaultdict(list)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            idle = process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
            if process.environ().get(MARK) == mark and process.pid != runs and not idle:
                line = " ".join(process.cmdline())
                found[next((kind for kind in KINDS if kind in line), "other")].append(process)
    return found


def halt(process: psutil.Process, seconds: float) -> None:
    """Stop a process for this long."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()
        try:
            time.sleep(seconds)
        finally:
            process.resume()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.6)
    given, asked = parser.parse_known_args()
    draw, mark, counts = random.Random(given.seed), uuid.uuid4().hex, Counter[str]()
    running = subprocess.Popen([*PYTEST, *(asked or ALL)], env={**os.environ, MARK: mark})
    while running.poll() is None:
        kinds = halted(mark, running.pid)
        if kinds:
            kind = draw.choice(sorted(kinds))
            counts[kind] += 1
            halt(draw.choice(kinds[kind]), min(draw.expovariate(1 / given.seconds), LONGEST_S))
        time.sleep(draw.expovariate(1 / PAUSE_S))
    print(f"{counts.total()} halts: " + ", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())
