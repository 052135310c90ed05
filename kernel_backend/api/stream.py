"""Stream messages about experiments over a websocket: all messages after a sequence number, one per frame."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing

from tornado.web import RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from kernel_backend.api.base import Activity, AuthenticatedHandler
from kernel_backend.errors import DaylightError, ServiceUnreachable

GOING_AWAY = 1001
REFUSED = 1008
INTERNAL_ERROR = 1011
LOOK_AGAIN_S = 20.0  # interval at which a client's authorisation is checked again

_log = logging.getLogger(__name__)


class StreamHandler(AuthenticatedHandler, WebSocketHandler):
    """Websocket that streams messages about experiments, such as changes of state and new metrics, to one client.

    Tornado checks the Origin header and refuses pages that come from other hosts.
    """

    _tasks: tuple[asyncio.Task[None], ...] = ()

    async def prepare(self) -> None:
        """Refuse invalid requests before the upgrade to a websocket, while the reply can be HTTP with a JSON body."""
        await super().prepare()
        self.after = self.integer("after", 0)
        self.experiment = self.maybe_integer("experiment")
        if self.experiment is not None:
            await self.service.overview(self.user, self.experiment)

    def open(self, *args: str, **kwargs: str) -> None:
        """Start sending messages to the client, once the websocket is open."""
        self._use.streams.add(self)
        self._tasks = (
            asyncio.create_task(self._speak(), name=f"stream after {self.after}"),
            asyncio.create_task(self._look_again(), name="who watches"),
        )

    async def get(self, *args: str, **kwargs: str) -> None:
        """Open a websocket, and send every message about experiments with a sequence number above `after`.

        Each message is one frame. With `experiment`, only messages about that experiment are sent.
        """
        await super().get(*args, **kwargs)

    def on_message(self, message: str | bytes) -> None:
        """Ignore what a client sends."""

    def on_close(self) -> None:
        """Stop sending messages: the client has disconnected."""
        self._use.streams.discard(self)
        self._use.last = time.monotonic()
        for task in self._tasks:
            task.cancel()

    @property
    def _use(self) -> Activity:
        found: Activity = self.settings["use"]
        return found

    async def _look_again(self) -> None:
        """Check the user's token at intervals, and close the connection once the token is invalid.

        The connection is also closed if the user's groups or rights have changed; the client then reconnects.
        """
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                person = await self.still()
            except ServiceUnreachable:
                continue
            except DaylightError as error:
                self.close(REFUSED, error.message[:100])
                return
            if person != self.who:
                self.close(GOING_AWAY if person else REFUSED, "the user of this connection has changed")
                return

    async def _speak(self) -> None:
        # Each message is read only after the previous one was sent, so that messages for a slow client wait in the
        # store, not in memory.
        try:
            async with aclosing(self.service.watch(self.user, self.after, self.experiment)) as messages:
                async for message in messages:
                    await self.write_message(message)
        except WebSocketClosedError:
            pass
        except DaylightError as error:
            self.close(INTERNAL_ERROR, error.message[:100])
        except Exception:
            _log.exception("a stream broke")
            self.close(INTERNAL_ERROR, "the service made a mistake; its log has the details")


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/stream": StreamHandler,
}
