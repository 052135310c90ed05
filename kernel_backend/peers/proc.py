"""Look up the socket at an end of a connection in the tables of proc(5), which takes milliseconds.

This is for kernels without the interface of `netlink.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from kernel_backend.peers.end import ConnectionEnd, FoundSocket

_V4, _V6 = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
_LISTEN = "0A"


def look(local: ConnectionEnd, remote: ConnectionEnd) -> FoundSocket | None:
    """Return the socket at `local` that receives what `remote` sends: the connection's, else the listener's.

    None if there is none.
    """
    tables = {table: list(_rows(table)) for table in (_V4, _V6)}
    order = [(_V6, local), (_V6, ConnectionEnd(IPv6Address(0), local.port))]
    if isinstance(local.address, IPv4Address):  # an IPv6 socket may serve IPv4, too; the exact address comes first
        order = [(_V4, local), (_V6, local), (_V4, ConnectionEnd(IPv4Address(0), local.port)), order[1]]
    for table, end in order:
        here, there = _written(end, table), _written(remote, table)
        for row in tables[table]:
            if row.local == here and row.remote == there and row.state != _LISTEN:
                return row.found
    for table, end in order:
        for row in tables[table]:
            if row.local == _written(end, table) and row.state == _LISTEN:
                return row.found
    return None


class _Row(NamedTuple):
    local: str
    remote: str
    state: str
    found: FoundSocket


def _rows(table: Path) -> Iterator[_Row]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:  # no IPv6
        return
    for fields in map(str.split, lines):
        yield _Row(fields[1], fields[2], fields[3], FoundSocket(int(fields[7]), held=fields[9] != "0"))


def _written(end: ConnectionEnd, table: Path) -> str:
    """Return an end of a connection as the kernel's table has it: hexadecimal words in the machine's byte order."""
    packed = end.address.packed
    if table is _V6 and len(packed) == 4:
        packed = bytes(10) + b"\xff\xff" + packed
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed)) + f":{end.port:04X}"
