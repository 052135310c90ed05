"""What a route is: a path, who handles it, and what goes in and comes out of each method."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tornado.web import RequestHandler

from kernel_backend.model.record import Record

# What stands for a part of a path, and which text it may be.
PARTS = {
    "number": r"[0-9]{1,9}",
    "trial": r"[0-9]{1,9}",
    "checkpoint": r"[0-9]{1,18}-[0-9]{1,9}",
    "artifact": r"(?:[A-Za-z0-9._-]|%20){1,300}",  # as an address has it: a space is %20
    "part": r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "id": r"[0-9a-f]{64}",
    "kind": r"(?:user|group)",
    "name": r"[^/]{1,900}",  # of a user, a group or a node: whatever it is, as an address has it
    "key": r"[0-9]{1,9}\.[0-9]{1,9}-[0-9]{1,9}",
}


@dataclass(frozen=True)
class Operation:
    """One method of a route. `answer` is a record, `{name: record}` for a list of them, or a media type."""

    answer: type[Record] | Mapping[str, type[Record]] | str | None = None
    body: type[Record] | str | None = None
    optional: bool = False  # the body may be left out
    query: Mapping[str, str] = field(default_factory=dict)  # name -> JSON type
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses with the same answer


@dataclass(frozen=True)
class Route:
    """A path such as `/api/experiments/{number}`, and what its methods do."""

    path: str
    handler: type[RequestHandler]
    operations: Mapping[str, Operation]

    @property
    def pattern(self) -> str:
        """The path as the regular expression that tornado matches."""
        return re.sub(r"{(\w+)}", lambda part: f"({PARTS[part[1]]})", self.path.replace(".", r"\."))

    @property
    def parts(self) -> list[str]:
        """The names within braces."""
        return re.findall(r"{(\w+)}", self.path)
