"""Forward the service's message stream, frame by frame, to a browser's websocket."""

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
    """Websocket that forwards messages about experiments from the service to one browser."""

    max_message_size = 2**16  # browsers send nothing

    _upstream: WebSocketClientConnection | None = None
    _passing: asyncio.Task[None] | None = None

    def set_default_headers(self) -> None:
        """Set no headers: a websocket needs none."""

    @ws_authenticated
    @authorized
    async def get(self) -> None:
        """Forward the service's stream, or its refusal, one message per frame until the browser disconnects."""
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
            await super().get()  # returns when the browser has disconnected
        finally:
            found.close()

    def open(self) -> None:
        """Start to forward messages of the service, now that the websocket is open."""
        super().open()
        assert self._upstream is not None
        self._passing = asyncio.create_task(self._pass_frames(self._upstream), name="Daylight's stream")

    def on_message(self, message: str | bytes) -> None:
        """Ignore what a browser sends."""

    async def _pass_frames(self, upstream: WebSocketClientConnection) -> None:
        """Forward every frame until the service ends the stream, even after the browser has disconnected.

        The next frame is read after the last one was written to the browser's socket, so that for a slow browser
        unread frames wait in the service's store, not in this server's memory.
        """
        while (frame := await upstream.read_message()) is not None:
            with suppress(WebSocketClosedError):
                await self.write_message(frame, binary=isinstance(frame, bytes))
        if upstream.close_code is None:
            self.close(GOING_AWAY, "Daylight's service has gone")
        else:
            self.close(upstream.close_code, upstream.close_reason)
