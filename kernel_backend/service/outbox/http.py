"""Send signed messages to webhooks over HTTP, but not to addresses of this machine unless the rules allow it."""

from __future__ import annotations

import json
import socket
import time
from http import HTTPStatus
from typing import Any

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.netutil import DefaultLoopResolver, Resolver
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError, SimpleAsyncHTTPClient

from kernel_backend import __version__
from kernel_backend.model.webhooks.payload import Payload
from kernel_backend.model.webhooks.records import StoredWebhook
from kernel_backend.model.webhooks.rules import HostRules, address_problem, signature
from kernel_backend.service.outbox.base import NotDelivered

TIMEOUT_S = 15.0  # until the receiver has answered
_CONNECTIONS = 32
_LONGEST_ANSWER = 2**20


class CheckedResolver(Resolver):
    """Resolver of host names that refuses hosts and addresses which the rules do not allow.

    The connection is made to the addresses that were checked: a name that resolves differently a moment later does not
    circumvent the rules.
    """

    def initialize(self, rules: HostRules) -> None:
        """Set the rules about hosts and addresses."""
        self._rules, self._resolver = rules, DefaultLoopResolver()

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        """Return the addresses of a host, each with its family; raises NotDelivered if the rules refuse one.

        Raises OSError if the host cannot be resolved.
        """
        found: list[tuple[int, Any]] = await self._resolver.resolve(host, port, family)
        for _, address in found:
            if problem := address_problem(host.lower().rstrip("."), address[0], self._rules):
                raise NotDelivered(problem)
        return found


class HttpTransport:
    """Transport that posts messages as JSON over HTTP; a message counts as delivered if the status is 2xx.

    Redirects are not followed.
    """

    def __init__(self, rules: HostRules) -> None:
        self._rules = rules
        self._client: SimpleAsyncHTTPClient | None = None

    async def send(self, hook: StoredWebhook, message: Payload) -> None:
        """Post a message to a webhook's URL; raises NotDelivered."""
        try:
            answer = await self._opened().fetch(_request(hook, message), raise_error=False)
        except NotDelivered:  # by the resolver
            raise
        except HTTPTimeoutError:
            raise NotDelivered(f"no answer within {TIMEOUT_S:g} s") from None
        except (OSError, HTTPStreamClosedError, HTTPError, ValueError) as error:
            raise NotDelivered(f"no connection: {str(error)[:200] or type(error).__name__}") from None
        if not 200 <= answer.code < 300:
            raise NotDelivered(_refusal(answer.code), gone=answer.code == HTTPStatus.GONE)

    def close(self) -> None:
        """Close the HTTP client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> SimpleAsyncHTTPClient:
        if self._client is None:
            self._client = SimpleAsyncHTTPClient(
                force_instance=True,
                max_clients=_CONNECTIONS,
                resolver=CheckedResolver(self._rules),
                max_body_size=_LONGEST_ANSWER,
                max_buffer_size=2 * _LONGEST_ANSWER,
            )
        return self._client


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
