"""Generate handlers for endpoints whose operations only call one method of the service (named by `Operation.verb`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import Any

from kernel_backend.api.base import ApiHandler
from kernel_backend.routes.operations import Endpoint, Operation

NUMBERS = ("number", "trial")  # path parameters that are integers


def verb_handler(endpoint: Endpoint) -> type[ApiHandler] | None:
    """Return a handler class whose HTTP methods call the service's methods that the operations name (`verb`).

    None if any of the endpoint's operations names none, and so needs a handler written by hand.
    """
    if not all(each.verb for each in endpoint.operations.values()):
        return None
    methods = {name.lower(): _calling(endpoint, each) for name, each in endpoint.operations.items()}
    return type("VerbHandler", (ApiHandler,), methods)


def _calling(endpoint: Endpoint, operation: Operation) -> Callable[..., Awaitable[None]]:
    """Return a handler method that calls the service's method named by `operation.verb`, and replies with its result.

    The service's method gets the user, the parameters in the path, the parsed body, the client's id of the request if
    the operation takes one, and the parameters of the query by name. If its result is None, the reply is the
    experiment's overview.
    """
    verb = attrgetter(operation.verb)

    async def call(self: ApiHandler, *parts: str) -> None:
        named = dict(zip(endpoint.parts, parts, strict=True))
        given: list[object] = [int(part) if name in NUMBERS else part for name, part in named.items()]
        if isinstance(operation.body, type):
            given.append(operation.body() if operation.optional and not self.body else self.parse(operation.body))
        if operation.by_id:
            given.append(self.request_id)
        query = {name: self.parameter(name, kind) for name, kind in operation.query.items()}
        answer: Any = await verb(self.service)(self.user, *given, **query, **operation.fixed)
        self.set_status(operation.status)
        if isinstance(operation.answer, Mapping):
            self.reply(dict.fromkeys(operation.answer, answer))
        else:
            self.reply(answer or await self.service.overview(self.user, int(named["number"])))

    call.__doc__ = operation.does
    return call
