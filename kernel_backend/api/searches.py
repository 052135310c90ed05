"""Show the available search methods."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler


class Methods(ApiHandler):
    """Handler that lists the available search methods."""

    async def get(self) -> None:
        """List the search methods, including those of other packages, and errors of packages that provide them."""
        self.reply(await self.service.search.methods())


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/search/methods": Methods,
}
