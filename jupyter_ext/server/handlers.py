"""Forward requests of signed-in browsers to the user's service."""

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
from tornado.httputil import HTTPHeaders
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
UNAUTHENTICATED = "this Jupyter server does not know you: reload the page to log in"
_Record = TypeVar("_Record", bound=Record)


class Handler(JupyterHandler):
    """Base class of handlers, which names the resource to authorize, and replies to errors in the service's format."""

    auth_resource = "daylight"

    def initialize(self, proxy: Proxy, path: str = "") -> None:
        """Set the proxy, and the path of the service's route to which the handler forwards requests."""
        self.proxy, self.path = proxy, path

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Reply to an error with its HTTP status, and with the error as JSON in the service's format."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, DaylightError):
            self.reply(error.http_status, error.to_json())
            return
        name = HTTPStatus(status_code).phrase
        said = error.log_message if isinstance(error, HTTPError) else None
        if status_code == 500:
            said = MISTAKE
        elif status_code == 403 and not self._is_known():
            said = UNAUTHENTICATED
        self.reply(status_code, {"error": name.replace(" ", ""), "message": said or name, "details": {}})

    def _is_known(self) -> bool:
        try:
            return self.current_user is not None
        except RuntimeError:  # refused before Jupyter has authenticated the request
            return False

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Reply to the request with this HTTP status and a JSON body."""
        self.pass_on(Answer(status, "application/json", json.dumps(body, allow_nan=False).encode()))

    def pass_on(self, answer: Answer) -> None:
        """Send the service's status, content type and body to the page, without other headers."""
        self.set_status(answer.status)
        self.set_header("Content-Type", answer.type)
        self.finish(answer.body)

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Log a DaylightError as one line, as a warning if its status is 500 or above; other errors as Jupyter does."""
        if isinstance(value, DaylightError):
            self.log.log(DEBUG if value.http_status < 500 else WARNING, "Daylight: %s", value.message)
        else:
            super().log_exception(typ, value, tb)


class Api(Handler, APIHandler):
    """Base class of REST handlers, whose replies browsers must not cache."""

    def set_default_headers(self) -> None:
        """Set Jupyter's headers, and forbid caching."""
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    def pass_on(self, answer: Answer) -> None:
        """Send the service's reply to the page with its content type, which need not be JSON."""
        self.set_status(answer.status)
        if answer.disposition:
            self.set_header("Content-Disposition", answer.disposition)
        self.finish(answer.body, set_content_type=answer.type)

    async def relay(self, parts: tuple[str, ...], body: bytes = b"") -> None:
        """Send the request to the service, with `parts` quoted and inserted in its path, and forward the reply."""
        path = self.path.format(*(quote(part, safe="") for part in parts))  # names may have any characters
        self.pass_on(await self.proxy.ask(str(self.request.method), path, self.request.query, body))


class ReadHandler(Api):
    """Handler that forwards GET requests to the service."""

    @authenticated
    @authorized
    async def get(self, *parts: str) -> None:
        """Forward the request to the service, and the reply to the page."""
        await self.relay(parts)


class StreamHandler(Api):
    """Handler of GET requests for large files, which are never all in memory."""

    @authenticated
    @authorized
    async def get(self, *parts: str) -> None:
        """Forward the request to the service, and the reply piece by piece, no faster than the page reads it."""
        refused = await self.proxy.stream(self.path.format(*parts), self._begin, self._write)
        if refused is not None:
            self.pass_on(refused)
            return
        self.finish(set_content_type="application/octet-stream")

    def _begin(self, headers: HTTPHeaders) -> None:
        for name in ("Content-Length", "Content-Disposition"):
            self.set_header(name, headers[name])

    async def _write(self, piece: bytes) -> None:
        self.write(piece)
        await self.flush()


class ActHandler(Api):
    """Handler of POST requests without a body; Jupyter has checked that the request is from a page of this server."""

    @authenticated
    @authorized
    async def post(self, *parts: str) -> None:
        """Forward the request to the service without a body."""
        await self.relay(parts)


class Change(Api):
    """Handler of POST requests with a JSON body."""

    def initialize(self, proxy: Proxy, path: str = "", body: type[Record] = Record, optional: bool = False) -> None:
        """Set the proxy, the service's path for this request, and the record type of the body.

        `optional` is True if the body may be empty.
        """
        super().initialize(proxy, path)
        self.record, self.optional = body, optional

    @authenticated
    @authorized
    async def post(self, *parts: str) -> None:
        """Validate the body as a record, and forward the request."""
        if self.optional and not self.request.body:
            await self.relay(parts)
            return
        try:
            asked = self.record.model_validate_json(self.request.body)
        except ValidationError as error:
            raise InvalidRequest(problem_text(error)) from None
        await self.relay(parts, asked.model_dump_json(exclude_none=True).encode())


class BundleHandler(Api):
    """Handler that returns an experiment's output in the form that a notebook saves."""

    @authenticated
    # A POST request only because the body has the sentences about the submission.
    @authorized("read")  # type: ignore[untyped-decorator]
    async def post(self, number: str) -> None:
        """Return the MIME bundle of an experiment's current state."""
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
                if answer.status != 200:  # a partial bundle must not replace a saved one
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
    """Handler that serves this version's quickstart notebook, without the service."""

    @authenticated
    @authorized
    async def get(self) -> None:
        """Reply with the quickstart notebook's file."""
        notebook = (files("jupyter_ext") / "quickstart.ipynb").read_bytes()
        self.pass_on(Answer(200, "application/json", notebook))


class UnknownHandler(Api):
    """Handler of unknown paths below Daylight's URL prefix."""

    @authenticated
    @authorized("read")  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Raise NotFound: Daylight has no such path."""
        raise NotFound(f"there is nothing at {self.request.path[:200]}")

    post = put = patch = delete = head = get


def _read(kind: type[_Record], answer: Answer) -> _Record:
    """Parse the service's reply as a record of type `kind`; raises OtherVersion if the versions are incompatible."""
    return read_answer(kind, answer.body, answer.version)


def _bundle(
    overview: Overview,
    captured: list[str],
    curves: Answer | None = None,
    picture: Answer | None = None,
    status: Answer | None = None,
    lines: Answer | None = None,
) -> dict[str, Any]:
    drawn = _read(Curves, curves) if curves else None
    search = fitted(_read(SearchStatus, status), _read(SearchCurves, lines)) if status and lines else None
    return bundle(overview, time.time(), captured, picture.body if picture else None, drawn, search)
