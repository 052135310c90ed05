"""Experiments: submit, look, act; their reports, curves, logs, source, archive and picture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from tornado.web import RequestHandler

from kernel_backend.api.base import ApiHandler
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.diff import Rerun as RerunAsked
from kernel_backend.model.experiment import Submission
from kernel_backend.model.labels import LabelEdit, split_tags
from kernel_backend.model.reports import Kind
from kernel_backend.model.views.curves import Curve
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import SearchStatus
from kernel_backend.spec.resume import Resumption

REPORTS_AT_ONCE = 10_000
POINTS = 400  # of a curve: a screen shows no more
LARGEST_TAIL = 2**20  # bytes of a log


class ExperimentsHandler(ApiHandler):
    """All of them that a person may see."""

    async def get(self) -> None:
        """List experiments, newest first: one's own, or an owner's or a group's; with `group=` all that one may see.

        `tag=a,b` lists those that have all of these tags.
        """
        state, search, owner, group = (
            self.get_query_argument(name, None) for name in ("state", "search", "owner", "group")
        )
        limit = self.integer("limit", 50, least=1, most=1000)
        tags = split_tags(self.get_query_argument("tag", ""))
        self.reply({"experiments": await self.service.overviews(self.user, state, search, limit, owner, group, tags)})

    async def post(self) -> None:
        """Submit an experiment whose snapshot has been stored; 200 with the one that goes on, if it is the same."""
        answer, new = await self.service.submit_once(self.user, self.parse(Submission))
        self.set_status(201 if new else 200)
        self.reply(answer)


class ExperimentHandler(ApiHandler):
    """One of them."""

    async def get(self, number: str) -> None:
        """Show an experiment: its record, trials, newest attempts, and why it waits."""
        self.reply(await self.service.overview(self.user, int(number)))


class Label(ApiHandler):
    """Its name, note and tags."""

    async def post(self, number: str) -> None:
        """Change an experiment's name, note or tags, at any time."""
        self.reply(await self.service.label(self.user, int(number), self.parse(LabelEdit)))


class StopHandler(ApiHandler):
    """The end for good."""

    async def post(self, number: str) -> None:
        """Stop an experiment for good."""
        self.reply(await self.service.stop(self.user, int(number)))


class PauseHandler(ApiHandler):
    """A step aside."""

    async def post(self, number: str) -> None:
        """Pause an experiment: it commits a checkpoint and gives its slots back."""
        self.reply(await self.service.pause(self.user, int(number)))


class ResumeHandler(ApiHandler):
    """A step back in."""

    async def post(self, number: str) -> None:
        """Resume a paused experiment, with another number of slots where the body names one."""
        asked = self.parse(Resumption) if self.body else Resumption()
        self.reply(await self.service.resume(self.user, int(number), asked.slots))


class RerunHandler(ApiHandler):
    """The same once more."""

    async def post(self, number: str) -> None:
        """Train an experiment's snapshot again, with what the body says to be other than it was."""
        asked = self.parse(RerunAsked) if self.body else RerunAsked()
        answer = await self.service.rerun(self.user, int(number), asked)
        self.set_status(201)
        self.reply(answer)


class VerifyHandler(ApiHandler):
    """Its first steps once more."""

    async def post(self, number: str) -> None:
        """Train the steps from an experiment's first checkpoint to its next again; `diff` then compares the two."""
        asked = self.parse(RerunAsked) if self.body else RerunAsked()
        answer = await self.service.verify(self.user, int(number), asked)
        self.set_status(201)
        self.reply(answer)


class DiffHandler(ApiHandler):
    """Two of them side by side."""

    async def get(self, number: str) -> None:
        """Compare an experiment with another: what differs, the likeliest cause first, and what came of it."""
        other = self.integer("other", 0, least=1)
        if not other:
            raise InvalidRequest("other is missing: write ?other=97, the number of the experiment to compare with")
        self.reply(await self.service.compare.diff(self.user, int(number), other))


class HistoryHandler(ApiHandler):
    """What has changed from one to the next."""

    async def get(self) -> None:
        """List experiments, newest first, each with what has changed since the one before it."""
        search = self.get_query_argument("search", None)
        limit = self.integer("limit", 20, least=1, most=200)
        self.reply({"history": await self.service.compare.history(self.user, search, limit)})


class ReportsHandler(ApiHandler):
    """What rank 0 said."""

    async def get(self, number: str) -> None:
        """List a trial's reports after a sequence number."""
        trial, after = self.integer("trial", 1, least=1), self.integer("after", 0)
        limit = self.integer("limit", REPORTS_AT_ONCE, least=1, most=REPORTS_AT_ONCE)
        kind = _kind(self.get_query_argument("kind", None))
        found = await self.service.reports(self.user, int(number), trial, kind, after, limit)
        self.reply({"reports": found})


class FactsHandler(ApiHandler):
    """What a result depends on and only a training finds out."""

    async def get(self, number: str) -> None:
        """List a trial's facts: samples delivered, files read, weights at step 0, the runtime."""
        trial = self.integer("trial", 1, least=1)
        self.reply({"facts": await self.service.facts(self.user, int(number), trial)})


class CurvesHandler(ApiHandler):
    """The reports, thinned to what a screen can show."""

    async def get(self, number: str) -> None:
        """Read a trial's curves, of at most so many points each."""
        trial, points = self.integer("trial", 1, least=1), self.integer("points", POINTS, least=10, most=2000)
        self.reply(await self.service.curves(self.user, int(number), trial, points))


class LogsHandler(ApiHandler):
    """What ranks printed."""

    async def get(self, number: str) -> None:
        """Read a rank's log from a byte offset on, or its last bytes from the beginning of a line on."""
        trial, offset = self.integer("trial", 1, least=1), self.maybe_integer("offset")
        attempt, rank = self.maybe_integer("attempt", least=1), self.maybe_integer("rank")
        tail = self.integer("tail", 0, least=1, most=LARGEST_TAIL) or None
        if tail is not None and offset is not None:
            raise InvalidRequest(f"tail={tail} and offset={offset}: give one of them")
        self.reply(await self.service.logs(self.user, int(number), trial, attempt, rank, offset or 0, tail))


class SourceHandler(ApiHandler):
    """What was submitted."""

    async def get(self, number: str) -> None:
        """Read the definition and the description of its snapshot."""
        definition, snapshot = await self.service.source(self.user, int(number))
        self.reply({"definition": definition, "snapshot": snapshot})


class EnvironmentHandler(ApiHandler):
    """What it ran with."""

    async def get(self, number: str) -> None:
        """Read the environment that was recorded, its lock, and what could not be locked."""
        self.reply(await self.service.environment(self.user, int(number)))


class ArchiveHandler(ApiHandler):
    """The whole of what was submitted."""

    async def get(self, number: str) -> None:
        """Read the snapshot's archive: definition, project files, description."""
        data = await self.service.archive(self.user, int(number))
        self.set_header("Content-Type", "application/zip")
        self.finish(data)


class PictureHandler(ApiHandler):
    """The curves, drawn."""

    async def get(self, number: str) -> None:
        """Draw the curves of an experiment as a PNG, of a search its best by when and its rungs."""
        dark = self.integer("dark", 0, most=1) == 1
        overview = await self.service.overview(self.user, int(number))
        if overview.experiment.config.search is None:
            curves = await self.service.curves(self.user, int(number), 1, POINTS)
            drawing = partial(_draw, overview, curves.curves, dark)
        else:
            standing = await self.service.search.standing(self.user, int(number), limit=0)
            drawing = partial(_draw_search, overview, standing, dark)
        async with self.settings["drawing"]:
            image = await asyncio.to_thread(drawing)
        self.set_header("Content-Type", "image/png")
        self.finish(image)


def _draw(overview: Overview, curves: Sequence[Curve], dark: bool) -> bytes:
    from kernel_backend.api.picture import draw  # matplotlib takes its time: here, off the event loop

    return draw(overview, curves, dark=dark)


def _draw_search(overview: Overview, standing: SearchStatus, dark: bool) -> bytes:
    from kernel_backend.api.search_picture import draw_search

    return draw_search(overview, standing, dark=dark)


def _kind(text: str | None) -> Kind | None:
    match text:
        case None | "training" | "validation":
            return text
    raise InvalidRequest(f"kind={text[:50]}: must be training or validation")


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/experiments": ExperimentsHandler,
    "/api/experiments/{number}": ExperimentHandler,
    "/api/experiments/{number}/label": Label,
    "/api/experiments/{number}/stop": StopHandler,
    "/api/experiments/{number}/pause": PauseHandler,
    "/api/experiments/{number}/resume": ResumeHandler,
    "/api/experiments/{number}/rerun": RerunHandler,
    "/api/experiments/{number}/verify": VerifyHandler,
    "/api/experiments/{number}/diff": DiffHandler,
    "/api/history": HistoryHandler,
    "/api/experiments/{number}/reports": ReportsHandler,
    "/api/experiments/{number}/facts": FactsHandler,
    "/api/experiments/{number}/curves": CurvesHandler,
    "/api/experiments/{number}/logs": LogsHandler,
    "/api/experiments/{number}/source": SourceHandler,
    "/api/experiments/{number}/environment": EnvironmentHandler,
    "/api/experiments/{number}/snapshot.zip": ArchiveHandler,
    "/api/experiments/{number}/picture.png": PictureHandler,
}
