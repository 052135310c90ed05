"""Simulate a service of a later version: each record in its answers has an additional, unknown field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.api.base import ApiHandler
from kernel_backend.api.stream import StreamHandler
from kernel_backend.client import Client
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.record import Record
from kernel_backend.model.reports import Delivery, Fact
from tests.api.committed import commit
from tests.api.served import Served, keep, report, started, submit, token_of
from tests.api.test_searching import begun, search, trained

KEY, SEARCH = AttemptId(1, 1, 1), 2
LATER = {"a_later_field": {"text": "what for", "list": [1]}}
SEEN = {"code": "c", "digest": "d", "samples": 3, "seed": 0, "whole": True}


def told(served: Served, client: Client, home: Path) -> None:
    """Provide a training and a search that have reported some values and saved artifacts."""
    submit(client)
    fact = Fact.model_validate({"number": 3, "at": 2.0, "name": "delivered", "value": {**SEEN, **LATER}})
    records = (started(), report(2), fact)
    client.deliver(KEY, token_of(served, KEY), Delivery(records=records))
    keep(served, {"net.png": b"\x89PNG"}, first=4)
    for step in (10, 20, 30, 40, 50):
        commit(home, step, loss=1 / step)
    assert search(client, parallel=1) == SEARCH
    begun(client, SEARCH, 1)
    trained(served, client, SEARCH, 1, 0.5)


def as_later(value: Any) -> Any:
    """Return a value as a later version sends it: with an additional, unknown field in each record."""
    if isinstance(value, Record):
        own = {name: as_later(getattr(value, name)) for name in type(value).model_fields if holds(getattr(value, name))}
        return {**value.to_json(), **own, **LATER}
    if isinstance(value, Mapping):
        return {key: as_later(each) for key, each in value.items()}
    return [as_later(each) for each in value] if isinstance(value, list | tuple) else value


def holds(value: Any) -> bool:
    """Return True for a record, and for a collection that contains one."""
    if isinstance(value, Mapping):
        return any(map(holds, value.values()))
    return any(map(holds, value)) if isinstance(value, list | tuple) else isinstance(value, Record)


class Later:
    """Service of a later version; it records its unchanged answers, and the handlers that gave them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.true: Any = None
        self.handlers: set[type] = set()
        reply, write = ApiHandler.reply, StreamHandler.write_message

        def says_more(handler: ApiHandler, answer: Any) -> None:
            self.true = answer
            self.handlers.add(type(handler))
            reply(handler, {**LATER, **as_later(answer)})

        def writes_more(handler: StreamHandler, message: Any, *args: Any) -> Any:
            self.handlers.add(type(handler))
            said = json.loads(message)
            return write(handler, json.dumps({**said, **LATER, "data": {**said["data"], **LATER}}), *args)

        monkeypatch.setattr(ApiHandler, "reply", says_more)
        monkeypatch.setattr(StreamHandler, "write_message", writes_more)
        monkeypatch.setattr("kernel_backend.api.base.__version__", "9.9.9")
