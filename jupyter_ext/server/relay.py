"""The websocket of the server extension: the service's stream, frame by frame, to a browser."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.websocket import WebSocketMixin
from tornado.web import HTTPError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler

from jupyter_ext.server.handlers import Handler
from jupyter_ext.server.proxy import Answer
from kernel_backend.errors import InvalidRequest

GOING_AWAY = 1001


class Relay(WebSocketMixin, WebSocketHandler, Handler):
    """One browser that watches."""

    max_message_size = 2**16  # watchers have nothing to say

    _upstream: WebSocketClientConnection | None = None
    _passing: asyncio.Task[None] | None = None

    def set_default_headers(self) -> None:
        """None: this is no page."""

    @ws_authenticated
    @authorized
    async def get(self) -> None:
        """Watch: every message after a sequence number, one a frame; what the service refuses is refused here."""
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise InvalidRequest(f"{self.request.path} is a websocket")
        if not self.check_origin():
            raise HTTPError(403, "pages of other hosts may not watch")
        found = await self.proxy.watch(self.request.query)
        if isinstance(found, Answer):
            self.pass_on(found)
            return
        self._upstream = found
        try:
            await super().get()  # until the browser has gone
        finally:
            found.close()

    def open(self) -> None:
        """Begin to pass on."""
        super().open()
        assert self._upstream is not None
        self._passing = asyncio.create_task(self._pass_frames(self._upstream), name="Daylight's stream")

    def on_message(self, message: str | bytes) -> None:
        """Watchers have nothing to say."""

    async def _pass_frames(self, upstream: WebSocketClientConnection) -> None:
        """Every frame until the service's end of the stream, even if nobody takes them any more.

        The next one is read when the last has left for the browser's socket: however slow a browser is, what it has
        not read yet waits in the service's store and not in this server's memory.
        """
        while (frame := await upstream.read_message()) is not None:
            with suppress(WebSocketClosedError):
                await self.write_message(frame, binary=isinstance(frame, bytes))
        if upstream.close_code is None:
            self.close(GOING_AWAY, "Daylight's service has gone")
        else:
            self.close(upstream.close_code, upstream.close_reason)
