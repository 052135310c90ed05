"""Send requests to the user's service, with a token that browsers never see."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from logging import Logger
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_plus

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.httputil import HTTPHeaders, parse_response_start_line
from tornado.netutil import DefaultExecutorResolver
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError, SimpleAsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_ext.server.finder import Finder
from kernel_backend.discovery import Address
from kernel_backend.errors import ServiceUnreachable
from kernel_backend.model.versions import REQUEST, VERSION
from kernel_backend.peers import check_listener
from kernel_backend.peers.end import ConnectionEnd
from kernel_backend.reconnect import remedy
from kernel_backend.retry import RetryPolicy
from kernel_backend.routes import takes_id

AT_ONCE = 100  # concurrent requests
RETRY = RetryPolicy((0.2,), tries=2)
PING_S = 20.0  # between pings of the service on a stream
BODY_LIMIT = 2**50  # bytes of a file that is passed on in pieces
FRAME_LIMIT = 16 * 2**20  # bytes of a message

_GONE = (OSError, HTTPStreamClosedError)  # refused or cut off: the service has ended or is ending
_T = TypeVar("_T")


class Answer(NamedTuple):
    """Reply of the service: status, media type, body, content disposition, and the service's version."""

    status: int
    type: str
    body: bytes
    disposition: str = ""
    version: str = ""


class Proxy:
    """HTTP client of the user's service, whose address is looked up again if the service restarts on another port.

    All forwarded requests are safe to repeat, those that make an experiment by an id; a request is sent again if the
    service ended before it replied.
    """

    def __init__(self, finder: Finder, limit: float, log: Logger) -> None:
        self._finder, self._limit, self._log = finder, limit, log
        self._kept: tuple[Address | None, SimpleAsyncHTTPClient | None] = (None, None)

    async def ask(self, method: str, path: str, query: str = "", body: bytes = b"") -> Answer:
        """Return the service's reply, whatever its status; raises ServiceUnreachable if there is no reply."""

        identified = {REQUEST: secrets.token_hex(16)} if takes_id(method, path) else {}

        async def fetch(address: Address) -> HTTPResponse:
            said = body if method == "POST" else None
            request = self._request(address, address.url, path, query, method=method, body=said)
            request.headers.update(identified)
            return await self._client(address).fetch(request, raise_error=False)

        self._log.debug("Daylight: asking for %s %s", method, path)
        return _answer(await self._twice(fetch))

    async def stream(
        self, path: str, begin: Callable[[HTTPHeaders], None], write: Callable[[bytes], Awaitable[None]]
    ) -> Answer | None:
        """Pass the service's reply on piece by piece, each once the one before is written; None is returned then.

        `begin` gets the headers of a successful reply. One that is not successful is returned whole. Raises
        ServiceUnreachable.
        """
        lines, refused, begun = list[str](), bytearray(), False

        def take(piece: bytes) -> Awaitable[None] | None:
            nonlocal begun
            if parse_response_start_line(lines[0].strip()).code != 200:
                refused.extend(piece)
                return None
            if not begun:
                begun = True
                begin(HTTPHeaders.parse("".join(lines[1:])))
            return write(piece)

        async def fetch(address: Address) -> HTTPResponse:
            lines.clear()
            # Without a time limit: it takes as long as the page reads.
            request = self._request(
                address,
                address.url,
                path,
                "",
                request_timeout=0,
                header_callback=lines.append,
                streaming_callback=take,
            )
            return await self._client(address).fetch(request, raise_error=False)

        try:
            answer = _answer(await self._twice(fetch))
        except ServiceUnreachable:
            if begun:
                raise HTTPStreamClosedError("the service ended before the file did") from None
            raise
        return None if answer.status == 200 else answer._replace(body=bytes(refused))

    async def watch(self, query: str) -> WebSocketClientConnection | Answer:
        """Return an open message stream, or the reply with which the service refused it.

        Raises ServiceUnreachable. A frame is read from the socket only after the caller has taken the previous one.
        """

        async def connect(address: Address) -> WebSocketClientConnection:
            url = f"ws{address.url.removeprefix('http')}"
            request = self._request(address, url, "/api/stream", query)
            looking = _Looking(address)
            return await websocket_connect(
                request, ping_interval=PING_S, max_message_size=FRAME_LIMIT, resolver=looking
            )

        self._log.debug("Daylight: watching")
        try:
            return await self._twice(connect)
        except HTTPClientError as error:
            if error.response is None:
                raise
            return _answer(error.response)

    def _client(self, address: Address) -> SimpleAsyncHTTPClient:
        """Return the HTTP client for this address; the same one as long as the address does not change."""
        before, client = self._kept
        if client is None or before != address:
            # An own client, whatever the server has configured: it uses no proxy of the environment.
            # The previous client ends with its pending requests.
            looking = _Looking(address)
            client = SimpleAsyncHTTPClient(
                force_instance=True, max_clients=AT_ONCE, max_body_size=BODY_LIMIT, resolver=looking
            )
            self._kept = address, client
        return client

    def _request(
        self,
        address: Address,
        url: str,
        path: str,
        query: str,
        method: str = "GET",
        body: bytes | None = None,
        **options: Any,
    ) -> HTTPRequest:
        return HTTPRequest(
            f"{url}{path}?{without_token(query)}",
            method=method,
            headers={"Authorization": f"Bearer {address.token}"},
            body=body,
            connect_timeout=self._limit,
            follow_redirects=False,  # the token must not be sent to another address
            **{"request_timeout": self._limit, **options},
        )

    async def _twice(self, attempt: Callable[[Address], Awaitable[_T]]) -> _T:
        """Run a request, `attempt`, and run it again after pauses while the service does not answer.

        Returns its result, or raises ServiceUnreachable after the last retry.
        """
        waits = RETRY.waits()
        while True:
            try:
                return await self._once(attempt)
            except _GONE as error:
                pause = next(waits, None)
                if pause is None:
                    raise ServiceUnreachable(
                        f"Daylight's service does not answer ({error}): try again, or {remedy()}"
                    ) from error
            await asyncio.sleep(pause)

    async def _once(self, attempt: Callable[[Address], Awaitable[_T]]) -> _T:
        address = await self._finder.address()
        try:
            return await attempt(address)
        except HTTPTimeoutError:
            which = f"pid {address.pid}" if address.pid else address.url
            help = "end that process, and the next request starts another" if address.pid else "tell the hub's admins"
            late = ServiceUnreachable(
                f"Daylight's service ({which}) has not answered within {self._limit:g} s: "
                f"try again; if it stays so, {help}"
            )
            late.http_status = 504
            raise late from None


class _Looking(DefaultExecutorResolver):
    """DNS resolver that refuses an address where another user's process listens, which must not get the token."""

    def initialize(self, address: Address) -> None:
        """Set the address of the service; Tornado calls this method instead of `__init__`."""
        self._address = address

    async def resolve(self, host: str, port: int, family: int = socket.AF_UNSPEC) -> list[tuple[int, Any]]:
        """Resolve a host name; raises ServiceUnreachable if another user's process listens at the address."""
        found = await super().resolve(host, port, socket.AddressFamily(family))
        if not self._address.encrypted:
            for _, end in found:
                check_listener(ConnectionEnd.of(end), self._address.trusted)
        return found


def without_token(query: str) -> str:
    """Return a query without Jupyter's token, which the service must not receive; the rest is unchanged."""
    return "&".join(part for part in query.split("&") if unquote_plus(part.partition("=")[0]) != "token")


def _answer(response: HTTPResponse) -> Answer:
    headers = response.headers
    media, disposition = headers.get("Content-Type", "application/json"), headers.get("Content-Disposition", "")
    return Answer(response.code, media, response.body, disposition, headers.get(VERSION, ""))
