"""Report the service's health."""

from __future__ import annotations

import os

from tornado.web import RequestHandler

from kernel_backend import NUMERICS, __version__
from kernel_backend.api.base import ApiHandler


class HealthHandler(ApiHandler):
    """Handler of the health check, which reports the service's version, process, database, warnings and pages."""

    async def get(self) -> None:
        """Return the service's version, process and database, warnings for admins, and the address of its pages."""
        busy, note = await self.service.busy(), self.service.numbering.note
        notes = [note] if note else []
        body = {"version": __version__, "numerics": NUMERICS, "pid": os.getpid(), "busy": busy, "notes": notes}
        self.reply(body | {"database": await self.service.database(), "pages": self.service.pages})


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/health": HealthHandler,
}
