"""Find out to which Unix user the process at the other end of a TCP connection on this machine belongs.

If a service is down, another user may listen on its port. That user must not receive what a client sends.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address

from kernel_backend.errors import ServiceUnreachable
from kernel_backend.peers import netlink, proc
from kernel_backend.peers.end import ConnectionEnd, FoundSocket


def check_connection(connection: socket.socket, users: Collection[int]) -> None:
    """Raise ServiceUnreachable unless a process of one of these users (uids) is at the other end of a connection.

    Nothing is raised if the other end is on another machine, or if this machine does not run Linux.
    """
    here, there = ConnectionEnd.of(connection.getsockname()), ConnectionEnd.of(connection.getpeername())
    if _is_local(there.address):
        # The listener is looked up first. A connection that is accepted later belongs to this listener: if another one
        # had been there before, the kernel would have reset its connections that were not accepted yet.
        listener, accepted = _look(there, ConnectionEnd(here.address, 0)), _look(there, here)
        _check(accepted if accepted is not None and accepted.held else listener, there, users)


def check_listener(where: ConnectionEnd, users: Collection[int]) -> None:
    """Raise ServiceUnreachable if the process that listens at an address belongs to none of these users (uids).

    Raises ConnectionRefusedError if no process listens there. Addresses of other machines are not checked, and none on
    a machine without Linux. This is only for data that must be sent before the connection itself can be checked:
    afterwards, another process may listen at the port.
    """
    if _is_local(where.address):
        found = _look(where, ConnectionEnd(where.address, 0))
        if found is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no service listens at {where}")
        _check(found, where, users)


def user_of(connection: socket.socket) -> int | None:
    """Return the uid of the process at the other end of a connection.

    None if it is on another machine or has closed the connection, or if this machine does not run Linux.
    """
    here, there = ConnectionEnd.of(connection.getsockname()), ConnectionEnd.of(connection.getpeername())
    found = _look(there, here) if _is_local(there.address) else None
    return found.uid if found is not None and found.held else None


def _look(local: ConnectionEnd, remote: ConnectionEnd) -> FoundSocket | None:
    try:
        return netlink.look(local, remote)
    except OSError:  # a kernel or sandbox that does not support this protocol
        return proc.look(local, remote)


def _is_local(address: IPv4Address | IPv6Address) -> bool:
    if sys.platform != "linux":
        return False  # only Linux reports socket owners
    if address.is_loopback:
        return True
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _check(found: FoundSocket | None, there: ConnectionEnd, users: Collection[int]) -> None:
    if found is None or found.uid not in users:
        who = f"of user {found.uid}" if found is not None else "of nobody"
        wanted = " or ".join(map(str, sorted(users)))
        raise ServiceUnreachable(f"at {there} listens a process {who}, and not the service of user {wanted}")
