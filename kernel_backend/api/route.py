"""Define a route: an endpoint of the API with the class that handles it."""

from __future__ import annotations

from dataclasses import dataclass

from tornado.web import RequestHandler

from kernel_backend.routes.operations import Endpoint


@dataclass(frozen=True)
class Route(Endpoint):
    """Endpoint of the API with the handler class of its operations."""

    handler: type[RequestHandler]
