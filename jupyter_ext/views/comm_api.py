"""Answer the requests to the service that a page sends through its kernel, and refuse those that pages may not make."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from kernel_backend.client import Client
from kernel_backend.errors import DaylightError, InvalidRequest, NotFound, TooLarge
from kernel_backend.model.record import checked
from kernel_backend.routes import ENDPOINTS
from kernel_backend.routes.operations import JSON, ONE, Operation

Json = dict[str, Any]
MOST_BYTES = 4 * 2**20  # bytes of a file, as it delays other requests to the kernel


def answer(client: Client, number: int, method: str, path: str, query: Mapping[str, Any]) -> tuple[int, Json]:
    """Return the HTTP status and the JSON of the service's answer to a page's request about experiment `number`."""
    try:
        if method == "GET" and (data := _file(client, number, path)) is not None:
            return 200, {"base64": b64encode(data).decode()}
        operation = _allowed(method, f"/api{path}", number)
        if operation is None:
            raise NotFound(f"this view asks about experiment {number} only, not {method} {path[:100]}")
        body = checked(operation.body, **query) if isinstance(operation.body, type) else None
        return 200, client.request(operation, method, f"/api{path}", body, _query(operation, query))
    except DaylightError as error:
        return error.http_status, error.to_json()
    except Exception as error:  # the page must always get an answer
        return 500, DaylightError(f"the kernel made a mistake ({type(error).__name__}: {error})").to_json()


def _allowed(method: str, path: str, number: int) -> Operation | None:
    """Return the operation of a path of this experiment if pages may use it and it returns JSON; None otherwise."""
    for endpoint in ENDPOINTS:
        operation, found = endpoint.operations.get(method), re.fullmatch(endpoint.pattern, path)
        if operation and found and operation.page and endpoint.path.startswith(ONE) and found[1] == str(number):
            return None if isinstance(operation.answer, str) and operation.answer != JSON else operation
    return None


def _query(operation: Operation, query: Mapping[str, Any]) -> Json:
    return {
        name: _number(name, query[name]) if each.type == "integer" else str(query[name])
        for name, each in operation.query.items()
        if name in query
    }


def _file(client: Client, number: int, path: str) -> bytes | None:
    """Return the bytes of the file at a path of this experiment; None if it is no file. Raises TooLarge."""
    one = f"/experiments/{number}"
    if path == f"{one}/export.csv":
        return client.export(number).encode()
    if found := re.fullmatch(rf"{one}/checkpoints/(\d+)/(\d+)-\d+/files\.tar", path):
        trial, step = found.groups()
        raise TooLarge(
            f"no checkpoint comes through the kernel: %dl checkpoint download {number}.{trial} --step {step}"
        )
    if found := re.fullmatch(rf"{one}/trials/(\d{{1,9}})/artifacts/([^/]+)", path):
        return _artifact(client, number, int(found[1]), unquote(found[2]))
    return None


def _artifact(client: Client, number: int, trial: int, name: str) -> bytes:
    kept = next((each for each in client.artifacts(number) if (each.trial, each.name) == (trial, name)), None)
    if kept is not None and kept.size > MOST_BYTES:
        raise TooLarge(f"{name} is too large to come through the kernel: %dl artifacts {number}.{trial} --get {name!r}")
    return client.artifact(number, trial, name)


def _number(name: str, value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"{name}={text[:50]}: must be a whole number")
    return int(text)
