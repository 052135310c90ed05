"""Provide the base class of the client, which parses answers as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kernel_backend.client.conversation import Conversation
from kernel_backend.model.record import Record
from kernel_backend.model.views.overview import Overview

READING_S = 3600.0  # seconds for slow reads, such as those of large or remote checkpoints
UPLOAD_S = 300.0  # seconds for the upload of a snapshot
_Answer = TypeVar("_Answer", bound=Record)


class Calls:
    """Base class of clients, which parses the service's answers as records."""

    def __init__(self, service: Conversation) -> None:
        self._service = service

    def _read(self, kind: type[_Answer], body: Mapping[str, Any]) -> _Answer:
        """Return an answer's JSON as a record of class `kind`; raises OtherVersion if it cannot be parsed as one."""
        return self._service.read(kind, body)

    def _list(self, kind: type[_Answer], body: Mapping[str, Any], name: str) -> list[_Answer]:
        """Return the list `name` of an answer as records of class `kind`; raises OtherVersion if that is impossible."""
        return [self._read(kind, each) for each in self._service.listed(body, name)]

    def _overview(self, method: str, path: str, **request: Any) -> Overview:
        return self._read(Overview, self._service.json(method, path, **request))


def given(**query: Any) -> dict[str, Any]:
    """Return the arguments that are not None as a dict of query parameters."""
    return {name: value for name, value in query.items() if value is not None}
