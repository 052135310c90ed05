"""Describe the operations of a route."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernel_backend.model.launch.staging import DIGEST, FILE
from kernel_backend.model.record import Record
from kernel_backend.model.views.overview import Overview

# Placeholders in paths, and regular expressions of their values.
PARTS = {
    "number": r"[0-9]{1,9}",
    "trial": r"[0-9]{1,9}",
    "checkpoint": r"[0-9]{1,18}-[0-9]{1,9}",
    "artifact": r"(?:[A-Za-z0-9._-]|%20){1,300}",  # URL-encoded: a space is %20
    "part": r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "id": r"[0-9a-f]{64}",
    "kind": r"(?:user|group)",
    "name": r"[^/]{1,900}",  # name of a user, a group, a node or a pool, URL-encoded
    "key": r"[0-9]{1,9}\.[0-9]{1,9}-[0-9]{1,9}",
    "file": FILE,
    "digest": DIGEST,
    "check": r"[0-9a-f]{32}",
    "allocation": r"[0-9]{1,9}-[0-9a-f]{6}",
}


@dataclass(frozen=True)
class Query:
    """Query parameter: its JSON type, its value if the query does not have it, and the bounds of a number."""

    type: Literal["integer", "string"]
    default: int | str | None = None
    least: int = 0
    most: int = 2**53


@dataclass(frozen=True)
class Operation:
    """HTTP method of a route, with its request and reply.

    `answer` describes the reply: the record that it contains, `{name: record}` for a list of records under this name,
    a media type such as `image/png`, or None for an empty reply.
    """

    answer: type[Record] | Mapping[str, type[Record]] | str | None = None
    body: type[Record] | str | None = None
    optional: bool = False  # the body may be omitted
    query: Mapping[str, Query] = field(default_factory=dict)
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses with the same reply
    page: bool = False  # pages may use it, too: Jupyter servers and kernels of widgets forward it
    again: bool = False  # idempotent POST, so that a client may repeat it after a lost reply
    by_id: bool = False  # POST that a client may repeat, if it gives it an id and the service knows such ids
    verb: str = ""  # method of the service, such as `stop` or `search.prune`; "": it has a handler of its own
    fixed: Mapping[str, bool] = field(default_factory=dict)  # arguments of that method that the operation determines
    does: str = ""  # description of the verb in the OpenAPI document


@dataclass(frozen=True)
class Endpoint:
    """Path of the API, such as `/api/experiments/{number}`, with an operation per HTTP method."""

    path: str
    operations: Mapping[str, Operation]

    @property
    def pattern(self) -> str:
        """Return the path as a regular expression, with a group for each parameter in braces."""
        return re.sub(r"{(\w+)}", lambda part: f"({PARTS[part[1]]})", self.path.replace(".", r"\."))

    @property
    def parts(self) -> list[str]:
        """Return the names of the path's parameters in braces."""
        return re.findall(r"{(\w+)}", self.path)


def verb(name: str, does: str, **options: Any) -> Mapping[str, Operation]:
    """Return the operations of a route whose POST calls a verb, by default one that returns an experiment's overview.

    `name` is the verb, such as `stop`, and `does` describes it.
    """
    return {"POST": Operation(verb=name, does=does, **{"answer": Overview, "again": True, **options})}


def reads(
    path: str, name: str, does: str, answer: type[Record] | Mapping[str, type[Record]], **options: Any
) -> Endpoint:
    """Return a route whose GET replies with what the method `name` of the service returns."""
    return Endpoint(path, {"GET": Operation(answer, verb=name, does=does, **options)})


def whole(default: int | None = None, least: int = 0, most: int = 2**53) -> Query:
    """Return a query parameter that is a whole number."""
    return Query("integer", default, least, most)


INT, TEXT = whole(), Query("string")
JSON, BYTES = "application/json", "application/octet-stream"
PNG, ZIP, TAR = "image/png", "application/zip", "application/x-tar"
CSV, PROMETHEUS = "text/csv", "text/plain"
ONE = "/api/experiments/{number}"
