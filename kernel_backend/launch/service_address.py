"""Find an address of the service that a launcher can reach, on the service's own machine or on another node."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kernel_backend.discovery import Address
from kernel_backend.errors import ServiceUnreachable
from kernel_backend.home import LAUNCHERS
from kernel_backend.model.launch.launch_spec import LaunchSpec

if TYPE_CHECKING:
    from kernel_backend.client import Client

CONNECT_S = 2.0  # timeout of a connection to one address of the service
SURE_S = 5.0  # for how long a reached address is used without another test


def connection(job: LaunchSpec, token: str) -> Client:
    """Return a client of the service to which an attempt belongs, which authenticates by `token`.

    It neither starts a service nor retries requests.
    """
    from kernel_backend.client import Client  # imported late, since it is slow and ranks should start first

    if job.service_urls:
        return client_of(job.service_urls, token, job.service_uid, Path(job.home))
    if job.service_url is not None:
        return Client.at(job.service_url, token, patience=0.0, user=job.service_uid)
    return Client.at_home(Path(job.home))


def client_of(urls: Sequence[str], token: str, user: int | None, home: Path | None = None) -> Client:
    """Return a client of the service at the first URL that accepts a connection.

    The URLs that the service has announced in its home folder (`home`) are tried first, then `urls`. If the service
    runs on this machine, its process must belong to the Unix user `user`, to this process's user, or to root.
    """
    from kernel_backend.client import Client

    return Client(_Finder(urls, token, user, home), patience=0.0)


class _Finder:
    """Search for a URL at which the service can be reached from this node.

    It tries those that the service has announced in its home, then those in the launch spec.
    """

    def __init__(self, urls: Sequence[str], token: str, user: int | None, home: Path | None) -> None:
        self._urls, self._token, self._user, self._home = urls, token, user, home
        self._found, self._at = "", 0.0  # the address reached last, and the monotonic time of that

    def __call__(self) -> Address:
        if not self._found or (time.monotonic() - self._at > SURE_S and not _listens(self._found)):
            self._found = next(filter(_listens, self._known()), "")
        self._at = time.monotonic()
        if not self._found:
            tried = ", ".join(dict.fromkeys(self._known()))
            raise ServiceUnreachable(f"no address of the service can be reached from this node: {tried}")
        return Address(self._found, self._token, user=self._user)

    def _known(self) -> Iterator[str]:
        """Yield the URLs to try: those that the service has announced in its home, then those in the launch spec."""
        yield from announced(self._home) if self._home is not None else ()
        yield from self._urls


def announced(home: Path) -> list[str]:
    """Return the URLs that the service has announced in its home folder; [] if the folder cannot be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return _texts(json.loads((home / LAUNCHERS).read_bytes())["urls"])
    return []


def connected(url: str) -> socket.socket:
    """Return an open connection to the machine and port in a URL; raise OSError if there is none."""
    where = urlsplit(url)
    return socket.create_connection((where.hostname or "", where.port or 80), CONNECT_S)


def _texts(found: Sequence[object]) -> list[str]:
    return [each for each in found if isinstance(each, str)]


def _listens(url: str) -> bool:
    with contextlib.suppress(OSError), connected(url):
        return True
    return False
