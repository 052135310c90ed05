"""The API's own description, made from the table of routes and the records' schemas."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from pydantic.json_schema import models_json_schema

from kernel_backend import __version__
from kernel_backend.api.base import ApiHandler
from kernel_backend.api.route import PARTS, Operation, Route
from kernel_backend.model.record import Record

_REF = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "message": {"type": "string"},
        "details": {"type": "object"},
    },
}


class OpenApi(ApiHandler):
    """The document itself."""

    async def get(self) -> None:
        """Describe every route."""
        self.reply(document(self.settings["routes"]))


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these routes."""
    routes = list(routes)
    operations = [operation for route in routes for operation in route.operations.values()]
    records = {record for operation in operations for record in _records(operation)}
    ordered = sorted(records, key=lambda record: record.__name__)
    _, schemas = models_json_schema([(each, "validation") for each in ordered], ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Daylight", "version": __version__},
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas["$defs"], "Error": _ERROR},
        },
        "paths": {route.path: _path(route) for route in routes},
    }


def _records(operation: Operation) -> list[type[Record]]:
    found = [operation.answer, operation.body]
    if isinstance(operation.answer, dict):
        found += operation.answer.values()
    return [each for each in found if isinstance(each, type)]


def _path(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{PARTS[part]}$"}}
        for part in route.parts
    ]
    methods = {method.lower(): _operation(route, method) for method in route.operations}
    return {"parameters": parameters, **methods} if parameters else methods


def _operation(route: Route, method: str) -> dict[str, Any]:
    operation = route.operations[method]
    summary = (inspect.getdoc(getattr(route.handler, method.lower())) or "").splitlines()[0]
    error = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
    described: dict[str, Any] = {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": kind}} for name, kind in operation.query.items()
        ],
        "responses": {
            str(operation.status): {"description": "done", **_content(operation.answer)},
            "default": {"description": "refused: what happened, and what to do", "content": error},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": not operation.optional, **_content(operation.body)}
    return described


def _content(what: Any) -> dict[str, Any]:
    if what is None:
        return {}
    if isinstance(what, str):
        return {"content": {what: {}}}
    return {"content": {"application/json": {"schema": _schema(what)}}}


def _schema(what: Any) -> dict[str, Any]:
    if isinstance(what, type):
        return {"$ref": _REF.format(model=what.__name__)}
    lists = {name: {"type": "array", "items": _schema(record)} for name, record in what.items()}
    return {"type": "object", "properties": lists}
