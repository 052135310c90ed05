"""Map an endpoint to the class that handles it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tornado.web import RequestHandler

from kernel_backend.routes import PARTS, Operation


@dataclass(frozen=True)
class Route:
    """A path such as `/api/experiments/{number}`, and the operations of its methods."""

    path: str
    handler: type[RequestHandler]
    operations: Mapping[str, Operation]

    @property
    def pattern(self) -> str:
        """Return the path as the regular expression that tornado matches."""
        return re.sub(r"{(\w+)}", lambda part: f"({PARTS[part[1]]})", self.path.replace(".", r"\."))

    @property
    def parts(self) -> list[str]:
        """Return the names within braces."""
        return re.findall(r"{(\w+)}", self.path)
