"""Show the available search methods, and a search's status, learning curves and hyperparameter importances."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler

ROWS, MOST_ROWS = 100, 1000  # trials of a page
LINES, MOST_LINES = 100, 10_000  # learning curves of a request
POINTS, MOST_POINTS = 60, 100_000  # points of a curve


class Methods(ApiHandler):
    """Handler that lists the available search methods."""

    async def get(self) -> None:
        """List the search methods, including those of other packages, and errors of packages that provide them."""
        self.reply(await self.service.search.methods())


class SearchHandler(ApiHandler):
    """Handler that shows the status of a search."""

    async def get(self, number: str) -> None:
        """Show the status of a search: its rungs (lengths of training), best value over time, and a page of trials."""
        sort = self.text("sort") or "best"
        limit, offset = self.integer("limit", ROWS, least=0, most=MOST_ROWS), self.integer("offset", 0)
        self.reply(await self.service.search.status(self.user, int(number), sort, limit, offset))


class CurvesHandler(ApiHandler):
    """Handler that serves the learning curves of a search's trials."""

    async def get(self, number: str) -> None:
        """Read the learning curves of a search's trials, best first: the metric after each unit, such as an epoch."""
        limit = self.integer("limit", LINES, least=1, most=MOST_LINES)
        points = self.integer("points", POINTS, least=2, most=MOST_POINTS)
        self.reply(await self.service.search.curves(self.user, int(number), limit, points))


class ImportanceHandler(ApiHandler):
    """Handler that computes the importance of a search's hyperparameters."""

    async def get(self, number: str) -> None:
        """Return each hyperparameter's share of the difference between good and poor trials."""
        self.reply(await self.service.search.importance(self.user, int(number)))


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/search/methods": Methods,
    "/api/experiments/{number}/search": SearchHandler,
    "/api/experiments/{number}/search/curves": CurvesHandler,
    "/api/experiments/{number}/search/importance": ImportanceHandler,
}
