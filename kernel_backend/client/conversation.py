"""Send HTTP requests to a service, and retry them if that is safe; no other file of the client uses HTTP."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from kernel_backend import __version__, errors, peers
from kernel_backend.client.http_library import hide_requests, httpx_module
from kernel_backend.discovery import Address, CannotStart
from kernel_backend.errors import DaylightError, InvalidRequest, OtherVersion, ServiceUnreachable
from kernel_backend.model import versions
from kernel_backend.model.record import Record, problem_text
from kernel_backend.model.stream import Message
from kernel_backend.reconnect import SILENCE_S, Reconnection, Say
from kernel_backend.routes import is_repeatable, takes_id

if TYPE_CHECKING:  # imported at the first call, so that kernels start quickly
    import socket

    import httpx
    from websockets.sync.client import ClientConnection

ANSWER_S = 30.0  # to wait for an answer
_PAGE = 4096  # bytes of a page in which its title is looked for
FRAME_LIMIT = 16 * 2**20  # bytes of one message

Locate = Callable[[], Address]
_Answer = TypeVar("_Answer", bound=Record)
_UNKNOWN = "Extra inputs are not permitted"  # the service's message for an unknown field


class Conversation:
    """HTTP connection to one service; requests raise the DaylightError that the service returned.

    The service's address is looked up before each request, so that a service which restarts on another port is found.
    Requests that are safe to repeat are retried for `patience` seconds before ServiceUnreachable is raised.
    """

    def __init__(self, locate: Locate, patience: float, say: Say) -> None:
        self._locate = locate
        self._patience = patience
        self._say = say
        self._open: dict[bool, httpx.Client] = {}  # by whether the connections are encrypted
        self._version = ""  # version of the service, from its last answer
        self._knows_ids = False  # whether the service knows ids of requests, from its last answer
        self._streams: set[ClientConnection] = set()
        self._closed = 0  # number of calls of `close`: earlier watches end

    def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        record: Record | None = None,
        **request: Any,
    ) -> httpx.Response:
        """Send a request and return the response; `record` is the body, `request` are arguments of httpx.

        The request is retried after a lost connection if `routes` declares it repeatable. One that makes an experiment
        gets an id, by which a service of this version or a newer one makes it once.
        """
        httpx = httpx_module()
        if record is not None:
            request["json"] = record.to_json()
        id = secrets.token_hex(16) if takes_id(method, path) else None
        if id is not None and not self._knows_ids:
            self.call("GET", "/api/health")  # whose answer says whether the service knows ids
        repeatable = is_repeatable(method, path) or (id is not None and self._knows_ids)
        trying = Reconnection(self._patience, self._say)
        while True:
            try:
                address = self._locate()
                known = _known(address, token, record, id)
                hide_requests(address.url)
                response = self._http(address.encrypted).request(method, address.url + path, **known, **request)
            except CannotStart:
                raise  # a retry would fail, too
            except (ServiceUnreachable, httpx.ConnectError, httpx.ConnectTimeout) as error:
                trying.wait(error)
            except httpx.TransportError as error:
                if not repeatable:
                    raise ServiceUnreachable(f"the service did not answer {path}: {error!r}") from error
                trying.wait(error)
            else:
                self._version = response.headers.get(versions.VERSION, "")
                self._knows_ids = versions.REQUEST in response.headers
                if response.is_error:
                    raise self._error(response)
                if not response.is_success or _is_page(response):  # Daylight's service redirects to nothing
                    raise _not_ours(response.status_code, response.content)
                return response

    def read(self, kind: type[_Answer], body: bytes | Mapping[str, Any]) -> _Answer:
        """Return an answer's JSON as a record of class `kind`; raises OtherVersion if it cannot be parsed as one."""
        return read_answer(kind, body, self._version)

    def listed(self, body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        """Return the list `name` in the JSON object of an answer; raises OtherVersion if there is none."""
        found = body.get(name)
        if not isinstance(found, list):
            raise OtherVersion(_versions(self._version, f"its answer cannot be read: it lists no {name}"))
        return found

    def json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """Return the JSON object in the response to a request; arguments are those of `call`."""
        return json_object(self.call(method, path, **request))

    def pieces(self, path: str, timeout: float) -> Iterator[bytes]:
        """Yield the content at a path in pieces as it arrives; after a lost connection continue where it stopped."""
        httpx = httpx_module()
        trying, offset = Reconnection(self._patience, self._say), 0
        while True:
            try:
                with self._streamed(path, offset, timeout) as response:
                    for piece in response.iter_bytes():
                        trying = Reconnection(self._patience, self._say)
                        offset += len(piece)
                        yield piece
                    return
            except CannotStart:
                raise
            except (ServiceUnreachable, httpx.TransportError) as error:
                trying.wait(error)

    def watch(self, after: int, experiment: int | None) -> Iterator[Message]:
        """Yield the messages after number `after`, each once and in order, until the caller stops or calls `close`.

        With `experiment`, only messages about it are yielded. A lost connection is reopened after the last received
        message. The retry time `patience` starts again after each connection that lasted a while, because a silent
        stream is no failure.
        """
        return self._watch(after, experiment, self._closed)

    def _watch(self, after: int, experiment: int | None, closed: int) -> Iterator[Message]:
        from websockets.exceptions import ConnectionClosed

        trying = Reconnection(self._patience, self._say)
        while self._closed == closed:
            opened: float | None = None
            try:
                with self._stream(after, experiment) as socket:
                    opened = time.monotonic()
                    if self._closed != closed:
                        return
                    for frame in socket:
                        message = self.read(Message, frame if isinstance(frame, bytes) else frame.encode())
                        trying = Reconnection(self._patience, self._say)
                        if message.seq > after:
                            after = message.seq
                            yield message
            except CannotStart:
                raise
            except (OSError, ConnectionClosed, ServiceUnreachable) as error:
                cut: Exception = error
            else:
                cut = ServiceUnreachable("the service ended the stream")
            if self._closed != closed:
                return
            if opened is not None and time.monotonic() - opened > SILENCE_S:
                trying = Reconnection(self._patience, self._say)
            trying.wait(cut)

    def close(self) -> None:
        """Close the connections, which ends each `watch`; the next request opens new ones."""
        self._closed += 1
        for socket in list(self._streams):
            socket.close()
        opened, self._open = self._open, {}
        for each in opened.values():
            each.close()

    @contextmanager
    def _stream(self, after: int, experiment: int | None) -> Iterator[ClientConnection]:
        from websockets.exceptions import InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        address = self._locate()
        url = f"ws{address.url.removeprefix('http')}/api/stream?after={after}"
        try:
            with connect(
                url if experiment is None else f"{url}&experiment={experiment}",
                additional_headers={"Authorization": f"Bearer {address.token}"},
                open_timeout=ANSWER_S,
                close_timeout=1,
                max_size=FRAME_LIMIT,
                proxy=None,
                create_connection=_looked_at(address),
            ) as socket:
                self._streams.add(socket)
                try:
                    yield socket
                finally:
                    self._streams.discard(socket)
        except InvalidStatus as error:
            raise _error(error.response.status_code, bytes(error.response.body or b"")) from None
        except InvalidHandshake as error:
            raise ServiceUnreachable(f"no stream at {address.url}: {error}") from None

    @contextmanager
    def _streamed(self, path: str, offset: int, timeout: float) -> Iterator[httpx.Response]:
        address = self._locate()
        asked: dict[str, Any] = {"params": {"offset": offset}, "timeout": timeout, **_known(address)}
        with self._http(address.encrypted).stream("GET", address.url + path, **asked) as response:
            if not response.is_success:
                raise _error(response.status_code, response.read())
            yield response

    def _error(self, response: httpx.Response) -> DaylightError:
        error = _error(response.status_code, response.content)
        if self._version != __version__ and type(error) is InvalidRequest and _UNKNOWN in error.message:
            return OtherVersion(_versions(self._version, error.message))
        return error

    def _http(self, encrypted: bool) -> httpx.Client:
        import ssl

        httpx = httpx_module()
        if encrypted not in self._open:
            # Loading the certificates of all authorities takes 20 ms, most of the time of a request. A context without
            # any trusts no server.
            verify = encrypted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # No proxy from the environment: the token must reach the service only,
            # and no redirects, which might lead to another address.
            timeout = httpx.Timeout(ANSWER_S, connect=5.0)
            self._open[encrypted] = httpx.Client(
                verify=verify, timeout=timeout, trust_env=False, follow_redirects=False
            )
        return self._open[encrypted]


def json_object(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object that a response contains; raises ServiceUnreachable if another program has answered."""
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise _not_ours(response.status_code, response.content)
    return answer


def _is_page(response: httpx.Response) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith("text/html")


def _not_ours(status: int, content: bytes) -> ServiceUnreachable:
    """Return the error for an answer that no service of Daylight gives, such as a proxy's page, with what it says."""
    text = content[:_PAGE].decode(errors="replace")
    title = re.search(r"<title[^>]*>([^<]*)", text, re.IGNORECASE)
    said = " ".join((title[1] if title else re.sub(r"<[^>]*>", " ", text)).split())[:100]
    return ServiceUnreachable(
        f"the answer is not of Daylight's service, but of a proxy or another program at its address (HTTP {status}"
        f"{f': {said!r}' if said else ''}): try again, look at DAYLIGHT_URL, or log in anew"
    )


def read_answer(kind: type[_Answer], body: bytes | Mapping[str, Any], version: str) -> _Answer:
    """Return a service's answer as a record of class `kind`, ignoring fields that this version does not know.

    Raises OtherVersion, with the service's `version`, if the answer cannot be parsed as the record.
    """
    if not isinstance(body, bytes):  # removes most unknown fields, so that one pass suffices
        body = {name: value for name, value in body.items() if name in kind.model_fields}
    try:
        return versions.read(kind, body, of_service=True)
    except ValidationError as error:
        raise OtherVersion(_versions(version, f"its answer cannot be read: {problem_text(error)}")) from None


def _known(
    address: Address, token: str | None = None, record: Record | None = None, id: str | None = None
) -> dict[str, Any]:
    """Return arguments of httpx for a request: headers with the token, and a hook that checks the server.

    The hook runs before the headers are sent. It raises an error if the process that listens at the address belongs to
    a user who must not get the token. `record` is the body; a header lists its fields that have their default values.
    Another has the request's `id`.
    """
    headers = {"Authorization": f"Bearer {token or address.token}", versions.VERSION: __version__}
    if id is not None:
        headers[versions.REQUEST] = id
    if record is not None:
        headers[versions.DEFAULTS] = ",".join(versions.at_defaults(record))

    def look(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete" and not address.encrypted:
            stream = info["return_value"]
            try:
                peers.check_connection(stream.get_extra_info("socket"), address.trusted)
            except BaseException:
                stream.close()
                raise

    return {
        "headers": headers,
        "extensions": {"trace": look},
    }


def _looked_at(address: Address) -> type[ClientConnection]:
    """Return a websocket class for connections to `address`, which checks who owns the listening process.

    The check comes before the token is sent, as only trusted users may get it. Encrypted connections need no check.
    """
    from websockets.sync.client import ClientConnection

    class LookedAt(ClientConnection):
        def __init__(self, connected: socket.socket, *args: Any, **options: Any) -> None:
            if not address.encrypted:
                peers.check_connection(connected, address.trusted)
            super().__init__(connected, *args, **options)

    return LookedAt


def _versions(theirs: str, detail: str) -> str:
    """Return an error message saying that client and service have incompatible versions, with a remedy.

    `theirs` is the service's version, "" if it reports none.
    """
    who = f"Daylight {theirs}" if theirs else "an older Daylight"
    if os.environ.get("DAYLIGHT_URL"):
        way_out = "install the hub's version here, or ask the hub's admins for this one"
    else:
        way_out = "end the service, whose trainings go on, and the next use starts one of this version"
    both = f"the service is {who}, this is Daylight {__version__}, and their versions do not work together"
    return f"{both} ({detail}): {way_out}"


def _error(status: int, content: bytes) -> DaylightError:
    import json

    if status < 400:
        return _not_ours(status, content)
    try:
        body = json.loads(content or b"{}")
    except ValueError:
        return _not_ours(status, content)
    if not body and status in _BARE:  # the answer to HEAD has no body
        return _BARE[status]("no such thing" if status == 404 else "no valid token")
    return errors.from_json(body, status) if isinstance(body, dict) else _not_ours(status, content)


_BARE: dict[int, type[DaylightError]] = {401: errors.Unauthenticated, 404: errors.NotFound}
