"""Generate handlers for endpoints whose operations only call a method (verb) of the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import attrgetter

from kernel_backend.api.base import ApiHandler
from kernel_backend.model.record import Record
from kernel_backend.routes import Endpoint, Operation

NUMBERS = ("number", "trial")  # path parameters that are integers


def verb_handler(endpoint: Endpoint) -> type[ApiHandler] | None:
    """Return a handler class whose methods call the service's verbs; None if any operation names no verb."""
    if not all(each.verb for each in endpoint.operations.values()):
        return None
    methods = {name.lower(): _calling(endpoint, each) for name, each in endpoint.operations.items()}
    return type("VerbHandler", (ApiHandler,), methods)


def _calling(endpoint: Endpoint, operation: Operation) -> Callable[..., Awaitable[None]]:
    """Return a handler method that calls the verb of `operation`.

    The verb gets the user, the parameters in the path and the parsed body. The reply is its result, or the overview of
    the experiment if the result is None.
    """
    verb = attrgetter(operation.verb)

    async def call(self: ApiHandler, *parts: str) -> None:
        named = dict(zip(endpoint.parts, parts, strict=True))
        given: list[object] = [int(part) if name in NUMBERS else part for name, part in named.items()]
        if isinstance(operation.body, type):
            given.append(operation.body() if operation.optional and not self.body else self.parse(operation.body))
        answer: Record | None = await verb(self.service)(self.user, *given)
        self.set_status(operation.status)
        self.reply(answer or await self.service.overview(self.user, int(named["number"])))

    call.__doc__ = operation.does
    return call
