"""The Jupyter server extension: its settings, its routes, and how a server loads it."""

from __future__ import annotations

import re
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from traitlets import Float
from traitlets.config import LoggingConfigurable

from jupyter_ext.finder import Finder
from jupyter_ext.handlers import Act, Bundle, Extend, File, Quickstart, Read, Unknown
from jupyter_ext.proxy import Proxy
from jupyter_ext.relay import Relay
from kernel_backend.discovery import START_LIMIT
from kernel_backend.model.routes import ENDPOINTS, PARTS

NUMBER = f"({PARTS['number']})"
ONE = "/api/experiments/{}"
NAME = f"({PARTS['artifact']})"


def _passed_on(method: str, body: bool = False, files: bool = False) -> tuple[str, ...]:
    """The paths that pages may ask for, with `{}` for each number, and those of files for a name behind them."""
    return tuple(
        re.sub(r"{\w+}", "{}", endpoint.path)
        for endpoint in ENDPOINTS
        for name, operation in endpoint.operations.items()
        if operation.page and name == method and ("{artifact}" in endpoint.path) == files
        if (operation.body is not None and not operation.optional) == body
    )


# What a browser may ask of the service: these, and nothing else of it.
READS = _passed_on("GET")
ACTS = _passed_on("POST")
(EXTEND,) = _passed_on("POST", body=True)
(FILE,) = _passed_on("GET", files=True)

Route = tuple[str, type, dict[str, Any]]


class DaylightExtension(LoggingConfigurable):
    """Lets the pages of this Jupyter server reach their user's Daylight service."""

    start_limit = Float(START_LIMIT, min=0.0, help="seconds that the service may take until it listens").tag(
        config=True
    )
    answer_limit = Float(30.0, min=0.1, help="seconds to wait for an answer of the service").tag(config=True)

    def routes(self) -> list[Route]:
        """Pattern below the base URL, handler, and what the handler is given."""
        proxy = Proxy(Finder(self.start_limit, self.log), self.answer_limit, self.log)
        return [
            *((_pattern(path), Read, {"proxy": proxy, "path": path}) for path in READS),
            *((_pattern(path), Act, {"proxy": proxy, "path": path}) for path in ACTS),
            (_pattern(EXTEND), Extend, {"proxy": proxy, "path": EXTEND}),
            (_pattern(FILE.removesuffix("{}")) + NAME, File, {"proxy": proxy, "path": FILE}),
            ("daylight/api/stream", Relay, {"proxy": proxy}),
            (f"daylight/bundle/{NUMBER}", Bundle, {"proxy": proxy}),
            ("daylight/quickstart", Quickstart, {"proxy": proxy}),
            ("daylight(?:/.*)?", Unknown, {"proxy": proxy}),
        ]


def _pattern(path: str) -> str:
    return f"daylight{re.escape(path)}".replace(re.escape("{}"), NUMBER)


def _load_jupyter_server_extension(server: ServerApp) -> None:
    """Add the routes to a server."""
    base = re.escape(url_path_join(server.base_url, "/"))
    routes = DaylightExtension(parent=server).routes()
    rules = [(base + pattern, handler, given) for pattern, handler, given in routes]
    server.web_app.add_handlers(".*$", rules)  # type: ignore[no-untyped-call]
    server.log.debug("Daylight's routes are below %sdaylight/", server.base_url)
