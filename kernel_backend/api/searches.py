"""Searches: how they stand, and steering them by hand."""

from __future__ import annotations

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.views.search_status import Extension

ROWS, MOST_ROWS = 100, 1000  # trials of a page
LINES, MOST_LINES = 100, 10_000  # learning curves
POINTS, MOST_POINTS = 60, 100_000  # of each


class Methods(ApiHandler):
    """The methods of searching."""

    async def get(self) -> None:
        """List the search methods, those of other packages too, and what keeps packages from adding theirs."""
        self.reply(await self.service.search.methods())


class SearchHandler(ApiHandler):
    """The search of an experiment."""

    async def get(self, number: str) -> None:
        """Show how a search stands: its rungs, its best by when, and a page of its trials."""
        sort = self.get_query_argument("sort", "best")
        limit, offset = self.integer("limit", ROWS, least=0, most=MOST_ROWS), self.integer("offset", 0)
        self.reply(await self.service.search.standing(self.user, int(number), sort, limit, offset))


class CurvesHandler(ApiHandler):
    """What its trials have learnt."""

    async def get(self, number: str) -> None:
        """Read the metric of many trials over their units, the best first."""
        limit = self.integer("limit", LINES, least=1, most=MOST_LINES)
        points = self.integer("points", POINTS, least=2, most=MOST_POINTS)
        self.reply(await self.service.search.curves(self.user, int(number), limit, points))


class ImportanceHandler(ApiHandler):
    """What makes the difference."""

    async def get(self, number: str) -> None:
        """Tell how much each hyperparameter makes of the difference between good trials and poor ones."""
        self.reply(await self.service.search.importance(self.user, int(number)))


class ExtendHandler(ApiHandler):
    """More of it."""

    async def post(self, number: str) -> None:
        """Let a search have more trials, slot time or time; one that has completed is open again."""
        await self.service.search.extend(self.user, int(number), self.parse(Extension))
        self.reply(await self.service.overview(self.user, int(number)))


class PromoteHandler(ApiHandler):
    """A person's favour."""

    async def post(self, number: str, trial: str) -> None:
        """Let a trial go on next, whatever its rank."""
        await self.service.search.promote(self.user, int(number), int(trial))
        self.reply(await self.service.overview(self.user, int(number)))


class PruneHandler(ApiHandler):
    """A person's verdict."""

    async def post(self, number: str, trial: str) -> None:
        """Give a trial up for good."""
        await self.service.search.prune(self.user, int(number), int(trial))
        self.reply(await self.service.overview(self.user, int(number)))


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/search/methods": Methods,
    "/api/experiments/{number}/search": SearchHandler,
    "/api/experiments/{number}/search/curves": CurvesHandler,
    "/api/experiments/{number}/search/importance": ImportanceHandler,
    "/api/experiments/{number}/extend": ExtendHandler,
    "/api/experiments/{number}/trials/{trial}/promote": PromoteHandler,
    "/api/experiments/{number}/trials/{trial}/prune": PruneHandler,
}
