"""Define the Jupyter server extension: its settings, its routes and the hook that loads it."""

from __future__ import annotations

import re
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from traitlets import Float
from traitlets.config import LoggingConfigurable

from jupyter_ext.server.finder import Finder
from jupyter_ext.server.handlers import (
    ActHandler,
    BundleHandler,
    Change,
    QuickstartHandler,
    ReadHandler,
    StreamHandler,
    UnknownHandler,
)
from jupyter_ext.server.proxy import Proxy
from jupyter_ext.server.relay import Relay
from kernel_backend.discovery import START_LIMIT
from kernel_backend.model.record import Record
from kernel_backend.routes import ENDPOINTS
from kernel_backend.routes.operations import PARTS, Operation

NUMBER = f"({PARTS['number']})"
ONE = "/api/experiments/{}"
_PATTERNS = {re.sub(r"{\w+}", "{}", endpoint.path): f"daylight{endpoint.pattern}" for endpoint in ENDPOINTS}


def _passed_on(method: str) -> dict[str, Operation]:
    """Return the operations that pages may use with this HTTP method, by path with `{}` for each parameter."""
    return {
        re.sub(r"{\w+}", "{}", endpoint.path): operation
        for endpoint in ENDPOINTS
        for name, operation in endpoint.operations.items()
        if operation.page and name == method
    }


def _record(operation: Operation) -> type[Record] | None:
    """Return the record type of a request body; None if there is none."""
    return operation.body if isinstance(operation.body, type) else None


# The only requests that a browser may send to the service.
FILE = "/api/experiments/{}/trials/{}/artifacts/{}"
CHECKPOINT = "/api/experiments/{}/checkpoints/{}/{}/files.tar"
READS = tuple(path for path in _passed_on("GET") if path not in (FILE, CHECKPOINT))
ACTS = tuple(path for path, operation in _passed_on("POST").items() if _record(operation) is None)
CHANGES = {path: body for path, operation in _passed_on("POST").items() if (body := _record(operation))}
OPTIONAL = {path for path, operation in _passed_on("POST").items() if operation.optional}  # the body may be empty

Route = tuple[str, type, dict[str, Any]]


class DaylightExtension(LoggingConfigurable):
    """Jupyter server extension that connects its pages to the user's Daylight service."""

    start_limit = Float(START_LIMIT, min=0.0, help="seconds for the service to start").tag(config=True)
    answer_limit = Float(30.0, min=0.1, help="seconds to wait for the service's answer").tag(config=True)

    def routes(self) -> list[Route]:
        """Return the routes: pattern below the base URL, handler class, and the handler's arguments."""
        proxy = Proxy(Finder(self.start_limit, self.log), self.answer_limit, self.log)
        return [
            *((_PATTERNS[path], ReadHandler, {"proxy": proxy, "path": path}) for path in (*READS, FILE)),
            *((_PATTERNS[path], ActHandler, {"proxy": proxy, "path": path}) for path in ACTS),
            *(
                (_PATTERNS[path], Change, {"proxy": proxy, "path": path, "body": body, "optional": path in OPTIONAL})
                for path, body in CHANGES.items()
            ),
            (_PATTERNS[CHECKPOINT], StreamHandler, {"proxy": proxy, "path": CHECKPOINT}),
            ("daylight/api/stream", Relay, {"proxy": proxy}),
            (f"daylight/bundle/{NUMBER}", BundleHandler, {"proxy": proxy}),
            ("daylight/quickstart", QuickstartHandler, {"proxy": proxy}),
            ("daylight(?:/.*)?", UnknownHandler, {"proxy": proxy}),
        ]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    """Add the extension's routes to a Jupyter server."""
    base = re.escape(url_path_join(server.base_url, "/"))
    routes = DaylightExtension(parent=server).routes()
    rules = [(base + pattern, handler, given) for pattern, handler, given in routes]
    server.web_app.add_handlers(".*$", rules)  # type: ignore[no-untyped-call]
    server.log.debug("Daylight's routes are below %sdaylight/", server.base_url)
