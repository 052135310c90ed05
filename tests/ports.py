"""Ports for what is started later, or again."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST = 15_000, 30_000


def free_ports(count: int) -> list[int]:
    """So many that nobody has, nor gets by asking for just any: not even while a server is down and comes again."""
    last = min(LAST, int(RANGE.read_text().split()[0]) if RANGE.exists() else LAST)
    found: list[int] = []
    for port in random.sample(range(FIRST, last), last - FIRST):
        if len(found) == count:
            break
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found
