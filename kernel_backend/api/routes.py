"""List all routes with their handlers, for the application, the OpenAPI document and the tests."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tornado.web import Application, RequestHandler

from kernel_backend.api import (
    admin,
    allocations,
    artifacts,
    attempts,
    checkpoints,
    cluster,
    experiments,
    openapi,
    probes,
    prometheus,
    searches,
    snapshots,
    stream,
)
from kernel_backend.api.base import Activity, UnknownRouteHandler
from kernel_backend.api.prometheus import RequestTimes
from kernel_backend.api.route import Route
from kernel_backend.api.verbs import verb_handler
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.identity.base import Browsers, Identity
from kernel_backend.model.cluster.people import Person
from kernel_backend.routes import ENDPOINTS
from kernel_backend.routes.attempts import ATTEMPT, HOLDER, PROBE
from kernel_backend.service.service import Service

PING_S = 20  # a client that does not answer pings for so long is disconnected

_MODULES = (
    admin,
    allocations,
    artifacts,
    attempts,
    checkpoints,
    experiments,
    openapi,
    probes,
    prometheus,
    searches,
    cluster,
    snapshots,
    stream,
)
_HANDLERS = {path: handler for module in _MODULES for path, handler in module.HANDLERS.items()}
ROUTES = tuple(Route(each.path, each.operations, verb_handler(each) or _HANDLERS[each.path]) for each in ENDPOINTS)


class _Nobody(Identity):
    """Identity provider without any users, for an application whose clients are programs on nodes of pools."""

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        return None


def launcher_application(service: Service, use: Activity) -> Application:
    """Return the tornado application for launchers, probes and holders on other nodes, without routes for users."""
    routes = [route for route in ROUTES if route.path.startswith((ATTEMPT, PROBE, HOLDER))]
    return Application(
        [(route.pattern, route.handler) for route in routes],
        default_handler_class=UnknownRouteHandler,
        service=service,
        identity=_Nobody(),
        browsers=None,
        use=use,
        routes=routes,
        log_function=lambda handler: None,
    )


def application(
    service: Service,
    identity: Identity,
    use: Activity | None = None,
    *,
    prefix: str = "",
    browsers: Browsers | None = None,
    secret: str | None = None,
    pages: Iterable[tuple[str, type[RequestHandler]]] = (),
) -> Application:
    """Return the tornado application of a service; the times of requests and open streams are recorded in `use`.

    With `browsers`, users of the pages are identified by cookies, which are signed with `secret`. `pages` are pairs of
    (URL pattern, handler). The paths of all routes and pages begin with `prefix`.
    """
    below = re.escape(prefix)
    times = RequestTimes({route.handler: route.path for route in ROUTES})
    return Application(
        [(below + pattern, handler) for pattern, handler in (*((r.pattern, r.handler) for r in ROUTES), *pages)],
        default_handler_class=UnknownRouteHandler,
        service=service,
        identity=identity,
        browsers=browsers,
        cookie_secret=secret,
        use=use or Activity(),
        routes=ROUTES,
        drawing=OwnerLimit(1, 1),  # drawing is slow: many requests of a user must not starve others
        websocket_ping_interval=PING_S,
        websocket_max_message_size=2**16,
        request_times=times,
        log_function=times.observe,
    )
