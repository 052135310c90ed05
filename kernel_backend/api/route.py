"""Map an endpoint to the class that handles it."""

from __future__ import annotations

from dataclasses import dataclass

from tornado.web import RequestHandler

from kernel_backend.routes import Endpoint


@dataclass(frozen=True)
class Route(Endpoint):
    """An endpoint, and the handler of its operations."""

    handler: type[RequestHandler]
