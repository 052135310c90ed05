"""Submit, list, control and label experiments; read their reports, curves, logs, source, archive and picture."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Submission
from kernel_backend.model.labels import split_tags
from kernel_backend.model.reports import Kind
from kernel_backend.model.views.curves import Curve
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import SearchStatus
from kernel_backend.routes.experiments import POINTS
from kernel_backend.text.csv_export import metrics_csv, trials_csv
from kernel_backend.text.experiment_rows import experiment_table

REPORTS_AT_ONCE = 10_000
PERIODS = 200  # periods of the curves of a slot's use
LARGEST_TAIL = 2**20  # bytes of a log


class ExperimentsHandler(ApiHandler):
    """Handler that lists and creates experiments."""

    async def get(self) -> None:
        """List experiments, newest first: the user's own by default, or those of another owner or of a group.

        `group=` (empty) lists all that the user may see. `tag=a,b` lists those that have all of these tags, and
        `notebook=a/b.ipynb` those from notebooks whose path ends with these names. To get the next page, set `before=`
        to the smallest number on the present page.
        """
        state, search, owner, group, notebook = (
            self.text(name) for name in ("state", "search", "owner", "group", "notebook")
        )
        limit, before = self.integer("limit", 50, least=1, most=1000), self.maybe_integer("before", least=1)
        tags = split_tags(self.text("tag") or "")
        found = await self.service.overviews(self.user, state, search, limit, owner, group, tags, notebook, before)
        self.reply({"experiments": found})

    async def post(self) -> None:
        """Submit an experiment whose snapshot has been stored.

        If an identical experiment is active, none is created, and that one is returned with status 200.
        """
        answer, new = await self.service.submissions.submit_once(self.user, self.parse(Submission), self.request_id)
        self.set_status(201 if new else 200)
        self.reply(answer)


class TableHandler(ApiHandler):
    """Handler that lists experiments as the rows of a table."""

    async def get(self) -> None:
        """List the user's own experiments as short rows, newest first.

        To get the next page, set `before=` to the smallest number on the present page; to get what has changed, set
        `after=` to the `seq` of an earlier answer. Only then are deleted ones listed.
        """
        after, before = self.maybe_integer("after"), self.maybe_integer("before", least=1)
        limit = self.integer("limit", 200, least=1, most=1000)
        found = await self.service.tabulated(self.user, after, before, limit)
        self.reply(await asyncio.to_thread(experiment_table, found, after or 0, time.time()))


class DiffHandler(ApiHandler):
    """Handler that compares two experiments."""

    async def get(self, number: str) -> None:
        """Compare an experiment with another: the differences, the likeliest cause first, and the results of each."""
        before, other = self.integer("before", 0, least=1), self.integer("other", 0, least=1)
        if not (before or other):
            raise InvalidRequest("other is missing: write ?other=97, the number of the experiment to compare with")
        a, b = (before, int(number)) if before else (int(number), other)
        self.reply(await self.service.compare.diff(self.user, a, b))


class ReportsHandler(ApiHandler):
    """Handler that lists the reports (metrics) of a trial."""

    async def get(self, number: str) -> None:
        """List a trial's reports (metrics of one step each) with sequence numbers above `after`, in order."""
        trial, after = self.integer("trial", 1, least=1), self.integer("after", 0)
        limit = self.integer("limit", REPORTS_AT_ONCE, least=1, most=REPORTS_AT_ONCE)
        kind = _kind(self.text("kind"))
        found = await self.service.reports(self.user, int(number), trial, kind, after, limit)
        self.reply({"reports": found})


class ExportHandler(ApiHandler):
    """Handler that exports an experiment's reports or trials as CSV."""

    async def get(self, number: str) -> None:
        """Export a trial's reports as CSV; for a search without a trial number, export its trials, one per row."""
        trial = self.maybe_integer("trial", least=1)
        found = await self.service.export(self.user, int(number), trial)
        lines = partial(trials_csv, found.trials) if isinstance(found, SearchStatus) else partial(metrics_csv, found)
        text = await asyncio.to_thread(lines)  # there may be millions
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.finish(text.encode())


class TimesHandler(ApiHandler):
    """Handler that shows how much time each part of a training takes."""

    async def get(self, number: str) -> None:
        """Return the seconds that each part of a training (such as loading data) takes, and the main cause of delay.

        They are listed by rank. For a search they are sums over all trials, or with a trial number the times of that
        trial.
        """
        trial = self.integer("trial", 0, least=0) or None
        self.reply(await self.service.times(self.user, int(number), trial))


class UtilisationHandler(ApiHandler):
    """Handler that shows how well an experiment uses its slots."""

    async def get(self, number: str) -> None:
        """Return the use of GPU, CPU and memory by rank, now and over time; for a search, of all trials or one."""
        trial = self.integer("trial", 0, least=0) or None
        points = self.integer("points", PERIODS, least=0, most=2000)
        self.reply(await self.service.utilisation.utilisation(self.user, int(number), trial, points))


class LogsHandler(ApiHandler):
    """Handler that serves pieces of a rank's log."""

    async def get(self, number: str) -> None:
        """Read a rank's log from a byte offset on, or about its last `tail` bytes, from the start of a line on."""
        trial, offset = self.integer("trial", 1, least=1), self.maybe_integer("offset")
        attempt, rank = self.maybe_integer("attempt", least=1), self.maybe_integer("rank")
        tail = self.integer("tail", 0, least=1, most=LARGEST_TAIL) or None
        if tail is not None and offset is not None:
            raise InvalidRequest(f"tail={tail} and offset={offset}: give one of them")
        self.reply(await self.service.logs(self.user, int(number), trial, attempt, rank, offset or 0, tail))


class SourceHandler(ApiHandler):
    """Handler that serves the submitted training definition."""

    async def get(self, number: str) -> None:
        """Read the submitted code (the training definition), and the description of its snapshot."""
        definition, snapshot = await self.service.source(self.user, int(number))
        self.reply({"definition": definition, "snapshot": snapshot})


class ArchiveHandler(ApiHandler):
    """Handler that serves a snapshot's archive."""

    async def get(self, number: str) -> None:
        """Read the snapshot's archive: training definition, project files, description."""
        self.set_header("Content-Type", "application/zip")
        await self.send(await self.service.archive(self.user, int(number)))


class PictureHandler(ApiHandler):
    """Handler that draws an experiment's learning curves as a PNG image."""

    async def get(self, number: str) -> None:
        """Draw an experiment's learning curves as a PNG image.

        For a search, draw its best value over time, and the results at each rung (length of training).
        """
        dark = self.integer("dark", 0, most=1) == 1
        overview = await self.service.overview(self.user, int(number))
        if overview.experiment.config.search is None:
            curves = await self.service.curves(self.user, int(number), 1, POINTS)
            drawing = partial(_draw, overview, curves.curves, dark)
        else:
            status = await self.service.search.status(self.user, int(number), limit=0)
            drawing = partial(_draw_search, overview, status, dark)
        async with self.settings["drawing"].of(self.user.name):
            image = await asyncio.to_thread(drawing)
        self.set_header("Content-Type", "image/png")
        self.finish(image)


def _draw(overview: Overview, curves: Sequence[Curve], dark: bool) -> bytes:
    from kernel_backend.api.picture import draw  # imported here, off the event loop, since matplotlib is slow to import

    return draw(overview, curves, dark=dark)


def _draw_search(overview: Overview, status: SearchStatus, dark: bool) -> bytes:
    from kernel_backend.api.search_picture import draw_search

    return draw_search(overview, status, dark=dark)


def _kind(text: str | None) -> Kind | None:
    match text:
        case None | "training" | "validation":
            return text
    raise InvalidRequest(f"kind={text[:50]}: must be training or validation")


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/experiments": ExperimentsHandler,
    "/api/experiments/table": TableHandler,
    "/api/experiments/{number}/diff": DiffHandler,
    "/api/experiments/{number}/reports": ReportsHandler,
    "/api/experiments/{number}/export.csv": ExportHandler,
    "/api/experiments/{number}/times": TimesHandler,
    "/api/experiments/{number}/utilisation": UtilisationHandler,
    "/api/experiments/{number}/logs": LogsHandler,
    "/api/experiments/{number}/source": SourceHandler,
    "/api/experiments/{number}/snapshot.zip": ArchiveHandler,
    "/api/experiments/{number}/picture.png": PictureHandler,
}
