"""Reserve ports for servers that a test starts later, or restarts."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST = 15_000, 30_000

# A test may have seeded the generator that all share: two processes of tests would draw the same ports then.
_chance = random.SystemRandom()
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return this many ports that no other program gets, even while the test's server is down.

    No port is returned twice, and parallel test processes get different ports.
    """
    among = [port for port in _places() if port not in _given]
    found: list[int] = []
    for port in _chance.sample(among, len(among)):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    _given.update(found)
    return found


def _places() -> range:
    """Return this process's part of the ports that the machine never assigns by itself."""
    low, high = map(int, RANGE.read_text().split()) if RANGE.exists() else (LAST, 2**16)
    if min(LAST, low) - FIRST >= 1000:
        ports = range(FIRST, min(LAST, low))
    elif 2**16 - high > 1000:  # a machine that gives away the low ones
        ports = range(high + 1, 2**16)
    else:  # or all of them: then one that was drawn is only very probably kept
        ports = range(FIRST, LAST)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return ports[int(worker) :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
