"""Generate the OpenAPI document from the table of routes and the schemas of records in requests and replies."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import FloatSchema
from tornado.web import RequestHandler

from kernel_backend import __version__
from kernel_backend.api.base import ApiHandler
from kernel_backend.api.route import Route
from kernel_backend.model.record import Record
from kernel_backend.model.stream import DATA, Message
from kernel_backend.routes.operations import PARTS, Operation

Refs = Mapping[tuple[type[Record], JsonSchemaMode], JsonSchemaValue]

_IN: JsonSchemaMode = "validation"
_OUT: JsonSchemaMode = "serialization"
_REF = "#/components/schemas/{model}"
_SUFFIX = {_IN: "Input", _OUT: ""}  # suffix of a schema's name: a body may omit fields, an answer has all
# Texts for the numbers that JSON lacks, and the bounds that exclude them.
_NOT_FINITE = {"NaN": ("gt", "ge", "lt", "le"), "Infinity": ("lt", "le"), "-Infinity": ("gt", "ge")}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "message": {"type": "string"},
        "details": {"type": "object", "additionalProperties": True},
    },
    "required": ["error", "message", "details"],
}


class OpenApiHandler(ApiHandler):
    """Handler that serves the OpenAPI document of the service."""

    async def get(self) -> None:
        """Return the OpenAPI document of every route."""
        self.reply(document(self.settings["routes"]))


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document that describes these routes, as a dict."""
    routes = list(routes)
    operations = [operation for route in routes for operation in route.operations.values()]
    refs, schemas = _schemas_of(_answers(operations), _OUT)
    more_refs, more_schemas = _schemas_of((each.body for each in operations), _IN)
    refs, schemas = {**refs, **more_refs}, {**schemas, **more_schemas}
    if "Message" in schemas:
        schemas |= _messages(schemas["Message"], refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Daylight", "version": __version__},
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Error": _ERROR},
        },
        "paths": {route.path: _path(route, refs) for route in routes},
    }


class _Schemas(GenerateJsonSchema):
    """Generator of JSON schemas of records, without titles of fields.

    Schemas of replies allow NaN and infinity as strings.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        found = super().float_schema(schema)
        if self.mode == _IN or not schema.get("allow_inf_nan", True):
            return found
        texts = [text for text, bounds in _NOT_FINITE.items() if not any(bound in schema for bound in bounds)]
        return {"anyOf": [found, {"type": "string", "enum": texts}]} if texts else found


def _answers(operations: Iterable[Operation]) -> Iterator[object]:
    """Yield the types of the operations' replies; for a stream of messages also the record types in the messages."""
    for operation in operations:
        answers = operation.answer.values() if isinstance(operation.answer, Mapping) else [operation.answer]
        yield from answers
        if Message in answers:
            yield from DATA.values()


def _schemas_of(described: Iterable[object], mode: JsonSchemaMode) -> tuple[Refs, dict[str, Any]]:
    """Return the JSON schemas of the record classes in `described`: references by (class, mode), and schemas by name.

    `described` may contain other values, such as content types; they are ignored.
    """
    records = {each for each in described if isinstance(each, type) and issubclass(each, Record)}
    ordered = [(each, mode) for each in sorted(records, key=lambda each: each.__name__)]
    suffix = _SUFFIX[mode]
    found, schemas = models_json_schema(ordered, ref_template=_REF + suffix, schema_generator=_Schemas)
    refs: Refs = {(record, mode): schema for (record, _), schema in found.items() if issubclass(record, Record)}
    return refs, {name + suffix: _summarised(schema) for name, schema in schemas.get("$defs", {}).items()}


def _summarised(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Return a record's schema, its description cut before the NumPy sections, which document the Python class."""
    text, _, sections = schema.get("description", "").partition("\n\nParameters\n")
    return {**schema, "description": text} if sections else schema


def _messages(plain: Mapping[str, Any], refs: Refs) -> dict[str, Any]:
    """Return a schema for each type of message in the stream, and one for Message as the union of these, by name.

    `plain` is the schema of the class Message, where the type of `data` is left open; `refs` has the schemas of the
    records in `data`.
    """
    found = {}
    for kind, record in DATA.items():
        own = {"type": {"const": kind, "type": "string"}, "data": refs[record, _OUT]}
        name = f"{kind.capitalize()}Message"
        found[name] = {**plain, "title": name, "properties": {**plain["properties"], **own}}
    return {**found, "Message": {"oneOf": [{"$ref": _REF.format(model=name)} for name in found]}}


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
            {"name": name, "in": "query", "schema": {"type": each.type}} for name, each in operation.query.items()
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


HANDLERS: dict[str, type[RequestHandler]] = {
    "/api/openapi.json": OpenApiHandler,
}
