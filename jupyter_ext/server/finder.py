"""Find or start the user's service without blocking the event loop."""

from __future__ import annotations

import asyncio
from logging import Logger

from kernel_backend import discovery
from kernel_backend.discovery import Address
from kernel_backend.errors import HomeUnusable, ServiceUnreachable

REST_S = 2.0  # for which a failure is cached, so that many views that retry do not start a process each
GRACE_S = 10.0  # more than the limit of a start, to find an interpreter or for a slow disk


class Finder:
    """Finder of the service's address; concurrent requests share one lookup.

    A lookup reads files and may start a process, which takes a second or longer, so that it runs in a thread.
    """

    def __init__(self, limit: float, log: Logger) -> None:
        self._limit, self._log = limit, log
        self._look: asyncio.Future[Address] | None = None

    async def address(self) -> Address:
        """Return the service's address; raises ServiceUnreachable with a hint if it cannot be started."""
        if self._look is None:
            self._look = asyncio.ensure_future(asyncio.to_thread(self._find_or_start))
            self._look.add_done_callback(self._looked)
        try:
            return await asyncio.wait_for(asyncio.shield(self._look), self._limit + GRACE_S)
        except TimeoutError:  # the lookup continues; the next request waits for it, too
            raise ServiceUnreachable(
                f"Daylight's service was neither found nor started within {self._limit + GRACE_S:g} s: "
                "try again; if it stays so, look whether the disk of DAYLIGHT_HOME answers"
            ) from None

    def _find_or_start(self) -> Address:
        try:
            if found := discovery.find():
                return found
            self._log.info("No Daylight service runs: starting one")
            return discovery.start(limit=self._limit)
        except (ServiceUnreachable, HomeUnusable) as error:  # browsers need not know the subclasses
            raise ServiceUnreachable(error.message) from error
        except OSError as error:
            raise ServiceUnreachable(
                f"Daylight's folder cannot be used ({error}): set DAYLIGHT_HOME to one that can"
            ) from error

    def _looked(self, look: asyncio.Future[Address]) -> None:
        failed = look.cancelled() or look.exception() is not None
        if failed:
            asyncio.get_running_loop().call_later(REST_S, self._forget)
        else:
            self._forget()

    def _forget(self) -> None:
        self._look = None
