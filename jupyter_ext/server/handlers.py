"""Handlers of the server extension: a browser that Jupyter knows asks, the user's service answers."""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus
from importlib.resources import files
from logging import DEBUG, WARNING
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from pydantic import ValidationError
from tornado.web import HTTPError, authenticated

from jupyter_ext.server.proxy import Answer, Proxy
from jupyter_ext.views import bundle
from jupyter_ext.views.saved_state import SAVED_LINES, SAVED_POINTS, SAVED_TRIALS, SAVED_UNITS, fitted
from kernel_backend.client.conversation import read_answer
from kernel_backend.errors import DaylightError, InvalidRequest, NotFound, TooLarge
from kernel_backend.model.record import Record, problem_text
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import SearchCurves, SearchStatus

BODY_LIMIT = 2**20  # bytes
MISTAKE = "Daylight's part of the Jupyter server made a mistake; the server's log has the details"
STRANGER = "this Jupyter server does not know you: reload the page to log in"
_Record = TypeVar("_Record", bound=Record)


class Handler(JupyterHandler):
    """What REST and websocket share: whose resource it is, and errors as the service words them."""

    auth_resource = "daylight"

    def initialize(self, proxy: Proxy, path: str = "") -> None:
        """Take the way to the service, and the path there."""
        self.proxy, self.path = proxy, path

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The JSON of a DaylightError, with its status."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, DaylightError):
            self.reply(error.http_status, error.to_json())
            return
        name = HTTPStatus(status_code).phrase
        said = error.log_message if isinstance(error, HTTPError) else None
        if status_code == 500:
            said = MISTAKE
        elif status_code == 403 and not self._is_known():
            said = STRANGER
        self.reply(status_code, {"error": name.replace(" ", ""), "message": said or name, "details": {}})

    def _is_known(self) -> bool:
        try:
            return self.current_user is not None
        except RuntimeError:  # refused before Jupyter looked who asks
            return False

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Answer with JSON."""
        self.pass_on(Answer(status, "application/json", json.dumps(body, allow_nan=False).encode()))

    def pass_on(self, answer: Answer) -> None:
        """Answer as the service did; a page needs no more of its headers."""
        self.set_status(answer.status)
        self.set_header("Content-Type", answer.type)
        self.finish(answer.body)

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Only our own mistakes with a traceback."""
        if isinstance(value, DaylightError):
            self.log.log(DEBUG if value.http_status < 500 else WARNING, "Daylight: %s", value.message)
        else:
            super().log_exception(typ, value, tb)


class Api(Handler, APIHandler):
    """A REST handler; nothing of it is kept by browsers."""

    def set_default_headers(self) -> None:
        """As Jupyter's own, and not to be cached."""
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    def pass_on(self, answer: Answer) -> None:
        """Answer as the service did; APIHandler wants to be told where that is no JSON."""
        self.set_status(answer.status)
        if answer.disposition:
            self.set_header("Content-Disposition", answer.disposition)
        self.finish(answer.body, set_content_type=answer.type)

    async def relay(self, parts: tuple[str, ...], body: bytes = b"") -> None:
        """Ask the service the same, and say what it says."""
        path = self.path.format(*parts)
        self.pass_on(await self.proxy.ask(str(self.request.method), path, self.request.query, body))


class ReadHandler(Api):
    """Look at something."""

    @authenticated
    @authorized
    async def get(self, *parts: str) -> None:
        """Answer as the service does."""
        await self.relay(parts)


class FileHandler(Api):
    """Look at something that has a name of the user's own."""

    @authenticated
    @authorized
    async def get(self, *parts: str) -> None:
        """Ask the service for it by its name as an address has it, and answer as it does."""
        await self.relay(tuple(quote(part, safe="") for part in parts))


class ActHandler(Api):
    """Do something to an experiment; Jupyter has checked that the page is its own."""

    @authenticated
    @authorized
    async def post(self, *parts: str) -> None:
        """Answer as the service does; a body means nothing to it and stays here."""
        await self.relay(parts)


class Change(Api):
    """Change an experiment as the body says."""

    def initialize(self, proxy: Proxy, path: str = "", body: type[Record] = Record) -> None:
        """Take the way to the service, the path there, and the record that the body must be."""
        super().initialize(proxy, path)
        self.record = body

    @authenticated
    @authorized
    async def post(self, *parts: str) -> None:
        """Check the body against the record and answer as the service does."""
        try:
            asked = self.record.model_validate_json(self.request.body)
        except ValidationError as error:
            raise InvalidRequest(problem_text(error)) from None
        await self.relay(parts, asked.model_dump_json(exclude_none=True).encode())


class BundleHandler(Api):
    """An experiment as a notebook's output keeps it."""

    @authenticated
    # A POST only because it is told the sentences of the submission.
    @authorized("read")  # type: ignore[untyped-decorator]
    async def post(self, number: str) -> None:
        """Make the MIME bundle of how it is now."""
        captured = self._captured()
        path = f"/api/experiments/{number}"
        shown = await self.proxy.ask("GET", path)
        if shown.status != 200:
            self.pass_on(shown)
            return
        overview = _read(Overview, shown)
        drawn: list[Answer] = []
        if any(trial.step for trial in overview.trials):
            trial = overview.front.index if overview.front else 1
            curves = f"points={SAVED_POINTS}" + (f"&trial={trial}" if trial > 1 else "")
            asked_for = [(f"{path}/curves", curves), (f"{path}/picture.png", "")]
            if overview.experiment.config.search is not None:
                asked_for.append((f"{path}/search", f"limit={SAVED_TRIALS}"))
                asked_for.append((f"{path}/search/curves", f"limit={SAVED_LINES}&points={SAVED_UNITS}"))
            for asked, query in asked_for:
                answer = await self.proxy.ask("GET", asked, query)
                if answer.status != 200:  # what is written back must never be less than what stands there
                    self.pass_on(answer)
                    return
                drawn.append(answer)
        self.reply(200, await asyncio.to_thread(_bundle, overview, captured, *drawn))

    def _captured(self) -> list[str]:
        if len(self.request.body) > BODY_LIMIT:
            raise TooLarge(f"the body is larger than {BODY_LIMIT // 2**20} MiB", limit=BODY_LIMIT)
        try:
            captured = json.loads(self.request.body)["captured"]
        except (ValueError, RecursionError, TypeError, KeyError):
            captured = None
        if isinstance(captured, list) and all(isinstance(text, str) for text in captured):
            return captured
        raise InvalidRequest('the body must be {"captured": [TEXT, ...]}')


class QuickstartHandler(Api):
    """The quickstart notebook of this version; the service is not asked."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Answer the notebook as its file has it."""
        notebook = (files("jupyter_ext") / "quickstart.ipynb").read_bytes()
        self.pass_on(Answer(200, "application/json", notebook))


class UnknownHandler(Api):
    """Every path below ours that is no route."""

    @authenticated
    @authorized("read")  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Say that there is nothing."""
        raise NotFound(f"there is nothing at {self.request.path[:200]}")

    post = put = patch = delete = head = get


def _read(kind: type[_Record], answer: Answer) -> _Record:
    """Return the record that the service answered; raises OtherVersion."""
    return read_answer(kind, answer.body, answer.version)


def _bundle(
    overview: Overview,
    captured: list[str],
    curves: Answer | None = None,
    picture: Answer | None = None,
    standing: Answer | None = None,
    lines: Answer | None = None,
) -> dict[str, Any]:
    drawn = _read(Curves, curves) if curves else None
    search = fitted(_read(SearchStatus, standing), _read(SearchCurves, lines)) if standing and lines else None
    return bundle(overview, time.time(), captured, picture.body if picture else None, drawn, search)
