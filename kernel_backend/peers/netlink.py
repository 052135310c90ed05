"""Look up the socket at an end of a connection by the kernel's interface sock_diag(7), which takes microseconds."""

from __future__ import annotations

import errno
import os
import socket
import struct
from ipaddress import IPv4Address, IPv6Address

from kernel_backend.peers.end import ConnectionEnd, FoundSocket

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY, _REQUEST, _ERROR = 20, 1, 2  # SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_ASKED = struct.Struct("=BBBxI")  # struct inet_diag_req_v2 up to its id
_PORTS, _REST = struct.Struct(">HH"), struct.Struct("=III")  # struct inet_diag_sockid: the addresses are between them
_ANSWER = struct.Struct("=4B48x5I")  # struct inet_diag_msg
_ANY_STATE = _NO_COOKIE = 0xFFFFFFFF


def look(local: ConnectionEnd, remote: ConnectionEnd) -> FoundSocket | None:
    """Return the socket at `local` that receives what `remote` sends: the connection's, else the listener's.

    None if there is none. Raises OSError if this kernel does not support the interface.
    """
    family = socket.AF_INET if isinstance(local.address, IPv4Address) else socket.AF_INET6
    about = _ASKED.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE)
    ends = _PORTS.pack(local.port, remote.port) + _packed(local.address) + _packed(remote.address)
    body = about + ends + _REST.pack(0, _NO_COOKIE, _NO_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
        answer = kernel.recv(4096)
    _, kind, *_ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -code == errno.ENOENT:
            return None
        raise OSError(-code, os.strerror(-code))
    *_, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    return FoundSocket(uid, held=inode != 0)


def _packed(address: IPv4Address | IPv6Address) -> bytes:
    return address.packed.ljust(16, b"\0")
