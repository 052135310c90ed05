"""Test that the API conforms to its OpenAPI document: random requests to every route, with validated answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import schemathesis
from hypothesis import settings
from jsonschema import Draft202012Validator
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from websockets.sync.client import connect

from kernel_backend.api.openapi import document
from kernel_backend.api.routes import ROUTES
from kernel_backend.client import Client
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery, Note
from kernel_backend.model.search.domains import Range
from kernel_backend.model.search.records import Search
from kernel_backend.model.search.space import Parameter, Space
from kernel_backend.model.stream import DATA, MessageType
from kernel_backend.model.trial import Trial
from tests.api.served import DEFINITION, TOKEN, Served, StillEngine, archive, keep, report, started, submit, token_of

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    allow_header_conformance,
    unsupported_method,
]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SPOKEN = [route for route in ROUTES if route.path != "/api/stream"]  # a websocket is no HTTP of this kind
schema = schemathesis.openapi.from_dict(document(SPOKEN))


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Provide a service that has an object of most kinds that requests name."""
    home: Path = tmp_path_factory.mktemp("described")
    served = Served(home, StillEngine())
    client = served.client()
    submit(client)
    key = AttemptId(1, 1, 1)
    note = Note(number=4, text="the disk is full", level="warning")
    told = (started(), report(2, 1.0, accuracy=0.9, loss=0.4), report(3, 2.0, loss=float("nan")), note)
    client.deliver(key, token_of(served, key), Delivery(records=told))
    keep(served, {"net.png": b"\x89PNG"}, first=5)
    search(client)
    token_of(served, AttemptId(2, 1, 1))  # it has the last slot, so that the next one is paused in the queue
    submit(client, "paused")
    client.pause(3)
    client.close()
    yield served
    served.stop()


def search(client: Client) -> None:
    """Submit a search with values of all types."""
    id, data = archive(DEFINITION.replace("width=8", "width=8, name='', deep=False, sizes=(), more=None"))
    client.upload_snapshot(id, data)
    domain = Range(low=2, high=64, whole=True, scale="log2")
    asked = Submission(
        snapshot=id,
        config=Config(search=Search(method="random", trials=2)),
        params={"lr": float("inf"), "name": "net", "deep": True, "sizes": [1, float("nan")], "more": {"a": None}},
        space=Space(parameters=(Parameter(name="width", domain=domain),)),
        python="/usr/bin/python3",
        cwd="/",
    )
    client.submit(asked)


@schema.parametrize()
@settings(max_examples=8)
def test_what_is_answered_is_what_is_described(case: Case, described: Served) -> None:
    number = str((case.path_parameters or {}).get("number", ""))
    if number.isdecimal() and int(number) % 4:  # else it is that of an experiment that is not there
        case.path_parameters["number"] = str(int(number) % 4)
    case.call_and_validate(base_url=described.url, headers=HEADERS, checks=CHECKS)


def test_every_message_of_the_stream_is_described(described: Served) -> None:
    whole = document(ROUTES)
    validator = Draft202012Validator({"$ref": "#/components/schemas/Message", "components": whole["components"]})
    missing = set(DATA)
    with connect(f"ws://127.0.0.1:{described.port}/api/stream?after=0", additional_headers=HEADERS) as stream:
        while missing:
            message = json.loads(stream.recv(timeout=60))
            validator.validate(message)
            missing.discard(message["type"])


def test_every_type_of_message_is_described_by_itself() -> None:
    schemas = document(ROUTES)["components"]["schemas"]
    each = [schemas[one["$ref"].rsplit("/", 1)[1]] for one in schemas["Message"]["oneOf"]]
    assert [one["properties"]["type"]["const"] for one in each] == list(get_args(MessageType)) == list(DATA)


def test_what_an_answer_always_has_is_required() -> None:
    schemas = document(ROUTES)["components"]["schemas"]
    assert schemas["Trial"]["required"] == list(Trial.model_fields)
    assert set(schemas["SubmissionInput"]["required"]) == {"snapshot", "python", "cwd"}


def test_an_experiments_answer_is_described_whole() -> None:
    described = document(ROUTES)
    overview = described["components"]["schemas"]["Overview"]
    assert list(overview["properties"])[:3] == ["id", "state", "name"]
    assert {"id", "state", "name", "experiment", "trials"} <= set(overview["required"])
