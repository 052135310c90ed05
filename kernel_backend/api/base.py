"""Define the base classes of all handlers: authenticate every request, and answer every error with JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from pydantic import ValidationError
from tornado.http1connection import HTTP1Connection
from tornado.web import HTTPError, RequestHandler, stream_request_body
from tornado.websocket import WebSocketHandler

from kernel_backend import __version__
from kernel_backend.api.body_memory import BODY_LIMIT, SNAPSHOT_LIMIT, BodyMemory
from kernel_backend.api.connection_limits import ConnectionsOfCallers, UnauthenticatedConnections
from kernel_backend.errors import DaylightError, InvalidRequest, NotFound, OtherVersion, TooLarge, Unauthenticated
from kernel_backend.fairness.threads import CALLER
from kernel_backend.identity.base import Browsers, Identity
from kernel_backend.model import versions
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.record import Record, first_problems, json_text, problem_text, truths_for_numbers
from kernel_backend.model.versions import DEFAULTS, REQUEST, VERSION
from kernel_backend.routes.operations import Query

if TYPE_CHECKING:
    from kernel_backend.service.service import Service

LONGEST_TEXT = 1000  # characters of a query parameter, which a database searches for
PIECE = 2**20  # bytes of a file that are sent at once
LOOKS = ("GET", "HEAD", "OPTIONS")  # methods that change nothing

_log = logging.getLogger(__name__)
_Record = TypeVar("_Record", bound=Record)


class MethodNotAllowed(DaylightError):
    """Error: the requested path exists, but not for this HTTP method."""

    http_status = 405


@dataclass
class Activity:
    """Use of the service: last request, open streams, memory of bodies, and connections that are not authenticated.

    The service ends itself after a time without use, which is measured from the last request, unless a stream is open.
    """

    last: float = field(default_factory=time.monotonic)
    streams: set[WebSocketHandler] = field(default_factory=set)
    strangers: UnauthenticatedConnections = field(default_factory=UnauthenticatedConnections)
    bodies: BodyMemory = field(default_factory=BodyMemory)
    connections: ConnectionsOfCallers = field(default_factory=ConnectionsOfCallers)

    def idle(self) -> float:
        """Return the seconds since the last request; 0 while a client streams messages."""
        return 0.0 if self.streams else time.monotonic() - self.last


class AuthenticatedHandler(RequestHandler):
    """Base class of REST and websocket handlers that require a valid token."""

    who: Person | None = None
    known = False  # whether the request is authenticated
    prepared = False  # whether the request is authenticated and its body read

    @property
    def service(self) -> Service:
        """Return the service whose operations the handlers call."""
        found: Service = self.settings["service"]
        return found

    @property
    def user(self) -> Person:
        """Return the user who makes the request."""
        assert self.who is not None, "prepare() has let no person in"
        return self.who

    @property
    def bearer(self) -> str:
        """Return the token of the Authorization header; "" if there is none."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    @property
    def request_id(self) -> str | None:
        """Return the id that the client has given to the request; None if it has given none. Raises InvalidRequest."""
        given: str | None = self.request.headers.get(REQUEST)
        if given is not None and re.fullmatch("[0-9a-f]{32}", given) is None:
            raise InvalidRequest(f"{REQUEST}: {given[:50]!r} is no id: send 32 hexadecimal digits, or none")
        return given

    async def authenticate(self) -> Person | None:
        """Return the user who makes the request; raises Unauthenticated, and errors of the identity provider.

        Subclasses for launchers, which have an attempt's token instead of a user's, return None.
        """
        identity: Identity = self.settings["identity"]
        browsers: Browsers | None = self.settings["browsers"]
        person, looks = None, self.request.method in LOOKS
        if self.bearer:
            person = await identity.who(self.bearer, remembered=looks)
        elif browsers is not None:
            person = await browsers.who(self, remembered=looks)
        if person is None:
            whose = "in DAYLIGHT_HOME/token" if browsers is None else "that the hub gave you"
            raise Unauthenticated(f"no valid token: send the one {whose} as Authorization: Bearer")
        return person

    async def still(self) -> Person | None:
        """Look up the request's user again, with current groups and rights; None if the token has become invalid.

        Raises errors of the identity provider.
        """
        identity: Identity = self.settings["identity"]
        browsers: Browsers | None = self.settings["browsers"]
        token = self.bearer or (browsers.token(self) if browsers is not None else "")
        return await identity.who(token, remembered=True)

    async def prepare(self) -> None:
        """Refuse requests without a valid token."""
        self.who = await self.authenticate()
        self.known = True
        CALLER.set(self._caller)  # in the task of this request alone
        if self.who is not None:
            await self.service.webhooks.seen(self.who)
        use: Activity = self.settings["use"]
        use.last = time.monotonic()
        stream = getattr(self.request.connection, "stream", None)
        use.strangers.known(stream)
        if stream is not None:
            use.connections.count(self._caller, stream)

    @property
    def _caller(self) -> str:
        return self.who.name if self.who is not None else self.path_args[0]  # else an attempt, a check, an allocation

    def set_default_headers(self) -> None:
        """Set headers that prevent responses from being cached, framed or content-sniffed."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header(VERSION, __version__)
        self.set_header(REQUEST, "known")
        self.clear_header("Server")

    def integer(self, name: str, default: int, least: int = 0, most: int = 2**53) -> int:
        """Return the query parameter `name` as an integer, or `default` if the query does not have it.

        Raises InvalidRequest if its value is no integer, or is not within `least` to `most`.
        """
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and least <= int(text[:20]) <= most):
            raise InvalidRequest(f"{name}={text[:50]}: must be a whole number from {least} to {most}")
        return int(text)

    def maybe_integer(self, name: str, least: int = 0) -> int | None:
        """Return the query parameter `name` as an integer, or None if it is absent; raises InvalidRequest."""
        given = self.get_query_argument(name, None) is not None
        return self.integer(name, 0, least) if given else None

    def parameter(self, name: str, kind: Query) -> int | str | None:
        """Return the query parameter `name`, or its default if it is absent or an empty text; raises InvalidRequest."""
        if kind.type == "string":
            return self.text(name) or kind.default
        if self.get_query_argument(name, None) is None:
            return kind.default
        return self.integer(name, 0, kind.least, kind.most)

    def text(self, name: str) -> str | None:
        """Return the query parameter `name`, None if it is absent; raises InvalidRequest if it is too long."""
        text = self.get_query_argument(name, None)
        if text is not None and len(text) > LONGEST_TEXT:
            raise InvalidRequest(f"{name}={text[:50]}...: has {len(text)} characters, and the limit is {LONGEST_TEXT}")
        return text

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Reply to a failed request with the error as JSON, and with the HTTP status of that error."""
        error = self.as_ours(status_code, kwargs.get("exc_info", (None, None, None))[1])
        self.set_status(error.http_status)
        if not self.prepared:  # tornado closes the connection, so the client must not send more requests on it
            self.set_header("Connection", "close")
        if error.http_status == 401:
            self.set_header("WWW-Authenticate", "Bearer")
        if error.http_status == 405:
            self.set_header("Allow", ", ".join(self.methods()))
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(error.to_json(), default=str))

    @classmethod
    def methods(cls) -> list[str]:
        """Return the HTTP methods that this handler class implements, such as `["GET", "POST"]`."""
        own = ((method, getattr(cls, method.lower(), None)) for method in RequestHandler.SUPPORTED_METHODS)
        return [method for method, act in own if act is not None and act is not RequestHandler._unimplemented_method]

    def as_ours(self, status: int, error: BaseException | None) -> DaylightError:
        """Return the DaylightError to reply with: `error` itself if it is one, else one made from it and `status`.

        For a client that is not authenticated, any other error becomes Unauthenticated, which reveals no details.
        """
        if isinstance(error, DaylightError):
            return error
        if not self.known:  # unauthenticated clients get no other details
            return Unauthenticated("no valid token")
        if status == 405:
            return MethodNotAllowed(f"{self.request.method} is not possible here: {self.request.path}")
        if isinstance(error, HTTPError):
            ours = InvalidRequest(error.get_message() or error.log_message or error.reason or f"HTTP {status}")
            ours.http_status = status
            return ours
        return DaylightError(f"the service made a mistake ({type(error).__name__}); its log has the details")

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log an internal error with its traceback; log expected errors only as a line at debug level."""
        if isinstance(value, DaylightError) and value.http_status in (503, *range(500)):  # 503 is temporary
            _log.debug("%s %s: %s", self.request.method, self.request.path, value.message)
        else:
            super().log_exception(typ, value, tb)


@stream_request_body
class ApiHandler(AuthenticatedHandler):
    """Base class of REST handlers: the body is read only after authentication, and up to a limit."""

    body_limit = BODY_LIMIT

    def initialize(self) -> None:
        """Create the empty buffer in which `data_received` collects the body of the request."""
        self._body = bytearray()
        self._reserved = 0
        self._answering = False

    async def prepare(self) -> None:
        """Refuse requests without a valid token, and bodies too large, alone or with the caller's others."""
        await super().prepare()
        size = self._announced()
        if size > self.body_limit:
            raise self._too_large()
        use: Activity = self.settings["use"]
        use.bodies.reserve(self._caller, size)
        self._reserved = size
        cast(HTTP1Connection, self.request.connection).set_max_body_size(SNAPSHOT_LIMIT)  # strangers have a small one
        self.prepared = True

    def on_finish(self) -> None:
        """Give back the memory that was reserved for the body."""
        if self._reserved:
            use: Activity = self.settings["use"]
            use.bodies.free(self._caller, self._reserved)
            self._reserved = 0

    def on_connection_close(self) -> None:
        """Give back the memory of a body whose rest does not come any more; one that is being answered is kept."""
        super().on_connection_close()
        if not self._answering:
            self.on_finish()

    def _announced(self) -> int:
        """Return how many bytes the body has at most, by the headers of the request."""
        length = self.request.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.request.headers or not length.isdigit():
            return self.body_limit
        return int(length)

    def data_received(self, chunk: bytes) -> None:
        """Append a piece of the body to the buffer, up to the limit.

        Checking Content-Length in `prepare` is not enough, since a body with chunked encoding does not announce its
        length.
        """
        if len(self._body) <= self.body_limit:
            self._body += chunk

    @property
    def body(self) -> bytes:
        """Return the request's body; raises TooLarge if it exceeds the limit."""
        self._answering = True
        if len(self._body) > self.body_limit:
            raise self._too_large()
        return bytes(self._body)

    def parse(self, kind: type[_Record], may_go: versions.MayGo | None = None) -> _Record:
        """Return the body as a record of class `kind`; raises InvalidRequest, which names each wrong field and value.

        A newer client may send fields that this version does not know. `may_go`, called with a field's value and place,
        decides whether to drop it; by default it is dropped if its value is the client's default, which has no effect.
        Another unknown field raises OtherVersion if the client has another version than this service, else
        InvalidRequest.
        """
        defaults = frozenset(self.request.headers.get(DEFAULTS, "").split(","))
        try:
            record = versions.read(kind, self.body, may_go or versions.changes_nothing(defaults))
            if place := self._truth_for_number(record):
                raise InvalidRequest(f"{place}: true and false are no numbers: send a number")
            return record
        except ValidationError as error:
            theirs = self.request.headers.get(VERSION, "")
            unknown = any(each["type"] == "extra_forbidden" for each in first_problems(error))
            if unknown and theirs not in ("", __version__):
                raise OtherVersion(
                    f"{problem_text(error)}: this service is Daylight {__version__} and does not know what Daylight "
                    f"{theirs[:50]} requests; use what both know, or have the service run by the newer version"
                ) from None
            raise InvalidRequest(problem_text(error)) from None

    def _truth_for_number(self, record: Record) -> str:
        """Return the place of a true or false in the body that was taken as the number 1 or 0; "" for none."""
        if b"true" not in self.body and b"false" not in self.body:
            return ""
        return next(truths_for_numbers(json.loads(self.body), record), "")

    def reply(self, answer: Record | dict[str, Any]) -> None:
        """Reply with `answer` as JSON."""
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json_text(answer))

    async def send(self, file: BinaryIO) -> None:
        """Reply with the content of a file, of which one piece is in memory, however slow the client is."""
        with file:
            self.set_header("Content-Length", os.fstat(file.fileno()).st_size)
            while piece := await asyncio.to_thread(file.read, PIECE):
                self.write(piece)
                await self.flush()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than {self.body_limit // 2**20} MiB", limit=self.body_limit)


class UnknownRouteHandler(ApiHandler):
    """Handler of paths that do not exist, which answers NotFound, but only to authenticated clients."""

    def _missing(self) -> None:
        raise NotFound(f"there is nothing at {self.request.path[:200]}: GET /api/openapi.json lists what there is")

    get = post = put = patch = delete = head = options = _missing
