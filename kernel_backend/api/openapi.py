"""The API's own description, made from the table of routes and the records' schemas."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import FloatSchema

from kernel_backend import __version__
from kernel_backend.api.base import ApiHandler
from kernel_backend.api.route import PARTS, Operation, Route
from kernel_backend.model.record import Record

Refs = Mapping[tuple[type[Record], JsonSchemaMode], JsonSchemaValue]

_IN: JsonSchemaMode = "validation"
_OUT: JsonSchemaMode = "serialization"
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
    modes = {each for operation in operations for each in _records(operation)}
    ordered = sorted(modes, key=lambda each: (each[0].__name__, each[1]))
    found, schemas = models_json_schema(ordered, ref_template=_REF, schema_generator=_Schemas)
    refs: Refs = {(record, mode): schema for (record, mode), schema in found.items() if issubclass(record, Record)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Daylight", "version": __version__},
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas["$defs"], "Error": _ERROR},
        },
        "paths": {route.path: _path(route, refs) for route in routes},
    }


class _Schemas(GenerateJsonSchema):
    """Numbers of an answer may be none of JSON's: they travel as text."""

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        found = super().float_schema(schema)
        return {"anyOf": [found, {"enum": ["NaN", "Infinity", "-Infinity"]}]} if self.mode == "serialization" else found


def _records(operation: Operation) -> list[tuple[type[Record], JsonSchemaMode]]:
    """What comes in and what goes out: of one record the two may look different."""
    answers = operation.answer.values() if isinstance(operation.answer, Mapping) else [operation.answer]
    found: list[tuple[type[Record], JsonSchemaMode]] = [(each, _OUT) for each in answers if isinstance(each, type)]
    return [*found, (operation.body, _IN)] if isinstance(operation.body, type) else found


def _path(route: Route, refs: Refs) -> dict[str, Any]:
    parameters = [
        {"name": part, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{PARTS[part]}$"}}
        for part in route.parts
    ]
    methods = {method.lower(): _operation(route, method, refs) for method in route.operations}
    return {"parameters": parameters, **methods} if parameters else methods


def _operation(route: Route, method: str, refs: Refs) -> dict[str, Any]:
    operation = route.operations[method]
    summary = (inspect.getdoc(getattr(route.handler, method.lower())) or "").splitlines()[0]
    error = {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}}
    done = (operation.status, *operation.also)
    described: dict[str, Any] = {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": kind}} for name, kind in operation.query.items()
        ],
        "responses": {
            **{str(each): {"description": "done", **_content(operation.answer, _OUT, refs)} for each in done},
            "default": {"description": "refused: what happened, and what to do", "content": error},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {"required": not operation.optional, **_content(operation.body, _IN, refs)}
    return described


def _content(what: Any, mode: JsonSchemaMode, refs: Refs) -> dict[str, Any]:
    if what is None:
        return {}
    if isinstance(what, str):
        return {"content": {what: {}}}
    return {"content": {"application/json": {"schema": _schema(what, mode, refs)}}}


def _schema(what: Any, mode: JsonSchemaMode, refs: Refs) -> dict[str, Any]:
    if isinstance(what, type):
        return refs[what, mode]
    lists = {name: {"type": "array", "items": _schema(record, mode, refs)} for name, record in what.items()}
    return {"type": "object", "properties": lists, "required": list(lists)}
