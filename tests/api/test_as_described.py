"""The API keeps what its OpenAPI document says: every route is asked at random, and each answer compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import settings
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

from kernel_backend.api.openapi import document
from kernel_backend.api.routes import ROUTES
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.api.served import TOKEN, Served, StillEngine, keep, report, started, submit, token_of

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
    """A service in which some of what can be asked for is there."""
    home: Path = tmp_path_factory.mktemp("described")
    served = Served(home, StillEngine())
    client = served.client()
    submit(client)
    key = AttemptId(1, 1, 1)
    told = (started(), report(2, 1.0, accuracy=0.9, loss=0.4), report(3, 2.0, loss=float("nan")))
    client.deliver(key, token_of(served, key), Delivery(records=told))
    keep(served, {"net.png": b"\x89PNG"}, first=4)
    submit(client, "paused")
    client.pause(2)
    client.close()
    yield served
    served.stop()


@schema.parametrize()
@settings(max_examples=8)
def test_what_is_answered_is_what_is_described(case: Case, described: Served) -> None:
    number = str((case.path_parameters or {}).get("number", ""))
    if number.isdecimal() and int(number) % 3:  # else it is that of an experiment that is not there
        case.path_parameters["number"] = str(int(number) % 3)
    case.call_and_validate(base_url=described.url, headers=HEADERS, checks=CHECKS)


def test_an_experiments_answer_is_described_whole() -> None:
    described = document(ROUTES)
    overview = described["components"]["schemas"]["Overview"]
    assert list(overview["properties"])[:3] == ["id", "state", "name"]
    assert {"id", "state", "name", "experiment", "trials"} <= set(overview["required"])
