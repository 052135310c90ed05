"""Define one end of a TCP connection, and the socket that is found there."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple


class ConnectionEnd(NamedTuple):
    """Address and port at one end of a connection."""

    address: IPv4Address | IPv6Address
    port: int

    @classmethod
    def of(cls, name: tuple[object, ...]) -> ConnectionEnd:
        """Return the end for a socket address, as `getsockname` returns it.

        An IPv4 address that is mapped into IPv6 becomes an IPv4 address.
        """
        address = ip_address(str(name[0]).partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return cls(mapped or address, int(str(name[1])))

    def __str__(self) -> str:
        host = f"[{self.address}]" if isinstance(self.address, IPv6Address) else str(self.address)
        return f"{host}:{self.port}"


class FoundSocket(NamedTuple):
    """Socket on this machine: the uid of its owner, and whether a process holds it."""

    uid: int
    held: bool  # False for a connection that is not accepted yet, or closed already
