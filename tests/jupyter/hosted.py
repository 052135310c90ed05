"""Run a real Jupyter server with only Daylight's extension, on a free port, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from jupyter_server.serverapp import ServerApp
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from traitlets.config import Config
from websockets.sync.client import ClientConnection, connect

TOKEN = "jupyters-own-token"
BASE = "/user/dave/"  # as behind a hub


class Hosted:
    """Jupyter server; `config` has settings by class. Requests have the user's token unless a test says otherwise."""

    def __init__(self, folder: Path, **config: dict[str, Any]) -> None:
        settings: dict[str, Any] = {
            "allow_root": True,
            "base_url": BASE,
            "jpserver_extensions": {"jupyter_ext": True},
            "open_browser": False,
            "terminals_enabled": False,
            "root_dir": str(folder),
        }
        folder.mkdir(exist_ok=True)
        config["ServerApp"] = settings | config.get("ServerApp", {})
        config["IdentityProvider"] = {"token": TOKEN}
        self._config = Config(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self._start())
        self.url = f"http://127.0.0.1:{self.port}{self.app.base_url}daylight"
        self.http = httpx.Client(headers={"Authorization": f"token {TOKEN}"}, timeout=60, trust_env=False)

    def get(self, path: str, **request: Any) -> httpx.Response:
        """Return the answer to a GET below `daylight`."""
        return self.http.get(self.url + path, **request)

    def post(self, path: str, **request: Any) -> httpx.Response:
        """Return the answer to a POST below `daylight`."""
        return self.http.post(self.url + path, **request)

    @contextmanager
    def stream(self, query: str = "", **options: Any) -> Iterator[ClientConnection]:
        """Open the message stream, like a browser."""
        headers = {"Authorization": f"token {TOKEN}"}
        url = f"ws{self.url.removeprefix('http')}/api/stream{query}"
        asked = {"additional_headers": headers, "proxy": None, "open_timeout": 60, "close_timeout": 1}
        with connect(url, **(asked | options)) as socket:
            yield socket

    def run(self, work: Any) -> Any:
        """Run a coroutine in the server's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        """End the server."""
        self.http.close()
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self.app = ServerApp(config=self._config)
        # What would change the test's own process: its signal handlers, and the parents of tornado's loggers.
        self.app.init_signal = self.app.init_logging = lambda: None
        self.app.initialize(argv=[], find_extensions=False, new_httpserver=False)
        self._server = HTTPServer(self.app.web_app)
        sockets = bind_sockets(0, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)

    async def _stop(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()
        await self.app._cleanup()
