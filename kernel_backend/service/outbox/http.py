"""Send signed messages to webhooks over HTTP, but not to addresses of this machine unless the rules allow it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.netutil import Resolver
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError, SimpleAsyncHTTPClient

from kernel_backend import __version__
from kernel_backend.model.webhooks.payload import Payload
from kernel_backend.model.webhooks.records import StoredWebhook
from kernel_backend.model.webhooks.rules import HostRules, address_problem, signature
from kernel_backend.service.outbox.base import PER_OWNER, NotDelivered

TIMEOUT_S = 15.0  # until the receiver has answered
_PORTS = {"http": 80, "https": 443}
_LOOKUPS = 32  # names that are being looked up at the same time
_LOOKUPS_PER_OWNER = PER_OWNER + 1  # for messages and a test
_LONGEST_ANSWER = 2**20

_Addresses = list[tuple[int, Any]]  # each with its family


class _CheckedAddresses(Resolver):
    """Resolver that returns the addresses which it was given.

    The connection is made to the addresses that were checked: a name that resolves differently a moment later does not
    circumvent the rules.
    """

    def initialize(self, addresses: _Addresses) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        return list(self._addresses)


class HttpTransport:
    """Transport that posts messages as JSON over HTTP; a message counts as delivered if the status is 2xx.

    Redirects are not followed. Threads of its own look names up, as a look-up cannot be ended.
    """

    def __init__(self, rules: HostRules) -> None:
        self._rules = rules
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="webhooks' names")
        self._looking: Counter[str] = Counter()  # look-ups by the webhook's owner

    async def send(self, hook: StoredWebhook, message: Payload) -> None:
        """Post a message to a webhook's URL; raises NotDelivered, or what the HTTP client makes of a wrong answer."""
        try:
            answer = await self._post(hook, message)
        except (TimeoutError, HTTPTimeoutError):
            raise NotDelivered(f"no answer within {TIMEOUT_S:g} s") from None
        except (OSError, HTTPStreamClosedError, HTTPError, ValueError) as error:
            raise NotDelivered(f"no connection: {str(error)[:200] or type(error).__name__}") from None
        if not 200 <= answer.code < 300:
            raise NotDelivered(_refusal(answer.code), gone=answer.code == HTTPStatus.GONE)

    def close(self) -> None:
        """Drop the look-ups that no thread has begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _post(self, hook: StoredWebhook, message: Payload) -> HTTPResponse:
        client = SimpleAsyncHTTPClient(
            force_instance=True,
            resolver=_CheckedAddresses(await self._checked(hook)),
            max_body_size=_LONGEST_ANSWER,
            max_buffer_size=2 * _LONGEST_ANSWER,
        )
        try:
            return await client.fetch(_request(hook, message), raise_error=False)
        finally:
            client.close()

    async def _checked(self, hook: StoredWebhook) -> _Addresses:
        """Return the addresses of a webhook's host, each with its family; raises NotDelivered if the rules refuse one.

        Raises OSError if the host cannot be resolved, and TimeoutError.
        """
        parts = urlsplit(hook.url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        async with asyncio.timeout(TIMEOUT_S):
            found = await asyncio.shield(self._look_up(hook.owner, host, port))
        for _, address in found:
            if problem := address_problem(host.lower().rstrip("."), address[0], self._rules):
                raise NotDelivered(problem)
        return found

    def _look_up(self, owner: str, host: str, port: int) -> asyncio.Future[_Addresses]:
        if self._looking[owner] >= _LOOKUPS_PER_OWNER:
            raise NotDelivered(f"{host} is looked up once the names of other webhooks of {owner} were answered for")
        self._looking[owner] += 1
        looking = asyncio.get_running_loop().run_in_executor(self._threads, _addresses, host, port)
        looking.add_done_callback(lambda _: self._looking.subtract((owner,)))
        return looking


def _addresses(host: str, port: int) -> _Addresses:
    return [(family, address) for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _request(hook: StoredWebhook, message: Payload) -> HTTPRequest:
    body, now = json.dumps(message.to_json()).encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Daylight/{__version__}",
        "webhook-id": message.id,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(hook.secret, message.id, now, body),
    }
    return HTTPRequest(
        hook.url,
        method="POST",
        headers=headers,
        body=body,
        follow_redirects=False,
        connect_timeout=TIMEOUT_S,
        request_timeout=TIMEOUT_S,
        decompress_response=False,
    )


def _refusal(status: int) -> str:
    name = next((each.phrase for each in HTTPStatus if each == status), "")
    said = f"the receiver answered {status} {name}".strip()
    return f"{said}; redirects are not followed" if 300 <= status < 400 else said
