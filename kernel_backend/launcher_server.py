"""Serve launchers on other nodes, which may use only the routes of attempts, with their attempt's token.

The service itself listens on loopback only. This server is opened once there is a pool of other nodes. It is not
encrypted: see docs/explanation/security.md.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tornado.netutil import bind_sockets

from kernel_backend.api.base import Activity
from kernel_backend.api.connection_limits import LimitedServer
from kernel_backend.api.routes import launcher_application
from kernel_backend.durable import replacing
from kernel_backend.home import LAUNCHERS, writing
from kernel_backend.network import network_devices
from kernel_backend.service.service import Service

EVERYWHERE = "0.0.0.0"
_log = logging.getLogger(__name__)


class LauncherServer:
    """HTTP server for launchers, with the addresses at which other nodes may reach it."""

    def __init__(self, home: Path, address: str, port: int) -> None:
        """Create a server that does not listen yet.

        `address` 0.0.0.0 means all addresses, and `port` 0 the port that the last server used. If `address` is a host
        name, the server listens on all addresses and announces the name, since a pod's address changes while its name
        stays.
        """
        self._file, self._port = home / LAUNCHERS, port
        self._name = "" if _is_address(address) else address
        self._address = EVERYWHERE if self._name else address
        self._sockets: list[socket.socket] = []
        self._server: LimitedServer | None = None
        self._serving: tuple[Service, Activity] | None = None
        self.urls: tuple[str, ...] = ()

    def open(self) -> None:
        """Begin to listen, unless the server listens already, and write its addresses to the home folder."""
        if self._sockets:
            self._serve()
            return
        self._sockets = self._bound()
        port = self._sockets[0].getsockname()[1]
        everywhere = (socket.gethostname(), *(device.address for device in network_devices()))
        hosts = everywhere if self._address == EVERYWHERE and not self._name else (self._name or self._address,)
        self.urls = tuple(f"http://{host}:{port}" for host in hosts)
        with writing(self._file.parent), replacing(self._file, mode=0o600) as file:
            file.write(json.dumps({"port": port, "urls": self.urls}).encode())
        _log.info("launchers on other nodes reach this service at %s", ", ".join(self.urls))
        self._serve()

    @asynccontextmanager
    async def serving(self, service: Service, use: Activity) -> AsyncIterator[None]:
        """Answer the requests of launchers by `service` during the block, as soon as `open` has been called.

        Their open connections are registered in `use`. After the block, launchers keep running and look for the next
        service at the same addresses.
        """
        self._serving = service, use
        self._serve()
        try:
            yield
        finally:
            if self._server is not None:
                self._server.stop()
                await self._server.close_all_connections()

    def _serve(self) -> None:
        if self._serving is not None and self._sockets and self._server is None:
            service, use = self._serving
            self._server = LimitedServer(launcher_application(service, use), use.strangers)
            self._server.add_sockets(self._sockets)

    def _bound(self) -> list[socket.socket]:
        """Return listening sockets at the configured port or, if none is configured, at the previous service's port.

        Launchers of the previous service can thus find this one. If the previous port is taken, any free one is used.
        """
        for port in dict.fromkeys((self._port or self._last(), self._port)):
            try:
                return bind_sockets(port, self._address, family=socket.AF_INET)
            except OSError as error:
                if port == self._port:
                    raise
                _log.warning("port %d, at which launchers look for this service, is taken: %s", port, error)
        raise AssertionError("there is always a port to try")

    def _last(self) -> int:
        try:
            return int(json.loads(self._file.read_bytes())["port"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
