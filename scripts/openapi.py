"""Print what pages read of the service's OpenAPI document, which is made from its code; no service has to run.

`GET /api/openapi.json` answers the whole document. Of its routes and schemas the front end uses about a third, and only
those are worth TypeScript's types: routes that the sources name, schemas that they name, and what these refer to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_backend.api.openapi import document
from kernel_backend.api.routes import ROUTES

SOURCES = Path("labextension")
GENERATED = "generated.ts"


def read_by(sources: str, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document's part that `sources` name: answers to GET requests, and schemas."""
    paths = {path: {"get": _answer(each["get"])} for path, each in whole["paths"].items() if f"'{path}'" in sources}
    schemas = whole["components"]["schemas"]
    words = set(re.findall(r"\w+", sources))
    used = _with_references([*_references(paths), *(name for name in schemas if name in words)], schemas)
    kept = {name: schema for name, schema in schemas.items() if name in used}
    return {"openapi": whole["openapi"], "info": whole["info"], "components": {"schemas": kept}, "paths": paths}


def _answer(operation: Mapping[str, Any]) -> dict[str, Any]:
    return {"summary": operation["summary"], "responses": {"200": operation["responses"]["200"]}}


def _with_references(names: Iterable[str], schemas: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += _references(schemas[name])
    return found


def _references(described: Any) -> Iterator[str]:
    """Yield the names of the schemas that a part of the document refers to."""
    if isinstance(described, Mapping):
        if isinstance(reference := described.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for each in described.values():
            yield from _references(each)
    elif isinstance(described, list):
        for each in described:
            yield from _references(each)


if __name__ == "__main__":
    files = [path for folder in ("src", "test") for path in sorted((SOURCES / folder).rglob("*.ts*"))]
    text = "\n".join(path.read_text() for path in files if path.name != GENERATED)
    print(json.dumps(read_by(text, document(ROUTES)), indent=2))
