"""Test that every route requires a token, and answers invalid requests with a JSON error that names the problem."""

from __future__ import annotations

import asyncio
import json
import math

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kernel_backend.api.openapi import document
from kernel_backend.api.routes import ROUTES
from kernel_backend.model.experiment import Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from tests.api.served import TOKEN, Served, archive, submit, token_of

HTTP = httpx.Client(timeout=120, trust_env=False)
EXAMPLES = {
    "number": "1",
    "trial": "1",
    "checkpoint": "10-1",
    "artifact": "net",
    "part": "model",
    "id": "0" * 64,
    "key": "1.1-1",
    "file": "rank-0.log",
    "digest": "0" * 32,
    "check": "0" * 32,
    "allocation": "1-5f3a9c",
    "kind": "user",
    "name": "ada",
}
STRANGERS = {
    "no token": {},
    "an empty token": {"Authorization": "Bearer"},
    "a wrong token": {"Authorization": "Bearer wrong"},
    "another scheme": {"Authorization": f"Basic {TOKEN}"},
    "no scheme": {"Authorization": TOKEN},
    "a token that is no text": {"Authorization": b"Bearer \xff\xfe"},
}
CALLS = [(method, route.path.format(**EXAMPLES)) for route in ROUTES for method in route.operations]
NO_ROUTES = [
    ("GET", "/"),
    ("GET", "/api/nothing"),
    ("DELETE", "/api/experiments/1"),
    ("OPTIONS", "/api/experiments"),
    ("BREW", "/api/nodes"),
    ("GET", "/api/experiments/../nodes"),
]


def call(served: Served, method: str, path: str, **request) -> httpx.Response:
    request.setdefault("headers", {"Authorization": f"Bearer {TOKEN}"})
    return HTTP.request(method, served.url + path, **request)


def test_the_walk_covers_every_handler_of_the_application(served):
    paths = {route.path for route in ROUTES}
    assert len(paths) == len(ROUTES)
    assert "/api/stream" in paths


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
def test_no_route_answers_a_stranger(served, stranger):
    for method, path in [*CALLS, *NO_ROUTES]:
        answer = call(served, method, path, headers=stranger)
        assert answer.status_code == 401, (method, path)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        if method != "HEAD":
            assert answer.json()["error"] == "Unauthenticated"


def test_a_token_in_the_address_lets_nobody_in(served):
    assert call(served, "GET", f"/api/nodes?token={TOKEN}", headers={}).status_code == 401


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_the_stream_answers_no_stranger(served, headers):
    for query in ("", f"?token={TOKEN}"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{served.port}/api/stream{query}", additional_headers=headers, proxy=None)
        assert refused.value.response.status_code == 401


def test_pages_of_other_hosts_get_no_stream(served):
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{served.port}/api/stream", additional_headers=headers, proxy=None)
    assert refused.value.response.status_code == 403


def test_a_user_token_is_no_attempt_token(served, client):
    submit(client)
    token = token_of(served, AttemptId(1, 1, 1))
    path = "/api/attempts/1.1-1/records"
    assert call(served, "POST", path, json={"records": []}).status_code == 401
    right = {"Authorization": f"Bearer {token}"}
    assert call(served, "POST", path, json={"records": []}, headers=right).status_code == 200
    assert call(served, "GET", "/api/nodes", headers=right).status_code == 401


def test_a_stranger_with_a_bad_body_hears_only_that_he_is_one(served, client):
    wrong = {"Authorization": "Bearer wrong"}
    assert call(served, "POST", "/api/attempts/1.1-1/records", content=b"{", headers=wrong).status_code == 401


def test_a_stranger_is_refused_before_the_body_is_read(served):
    answer = call(served, "PUT", f"/api/snapshots/{'0' * 64}", content=b"x" * 50_000_000, headers={})
    assert answer.status_code == 401


def test_what_is_not_there_is_404_with_json(served):
    no_part = "/api/experiments/1/checkpoints/1/10-1/parts/..%2Fmanifest.json"
    for path in ("/", "/api/nothing", "/api/experiments/7", "/api/snapshots/xyz", "/api/experiments/١", no_part):
        answer = call(served, "GET", path)
        assert answer.status_code == 404, path
        assert answer.json()["error"] == "NotFound"
        assert answer.headers["Content-Type"].startswith("application/json")


def test_a_wrong_method_is_405_with_json(served):
    for method, path in (("DELETE", "/api/experiments/1"), ("POST", "/api/nodes"), ("PUT", "/api/stream")):
        answer = call(served, method, path)
        assert answer.status_code == 405
        assert answer.headers["Allow"] == {"DELETE": "GET", "POST": "GET", "PUT": "GET"}[method]
        assert answer.json()["error"] == "MethodNotAllowed"


GARBAGE = {
    "nothing": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe\x00",
    "another type": b"[1, 2]",
    "null": b"null",
    "deep nesting": b"[" * 100_000,
    "an unknown field": b'{"snapshot": "a", "python": "p", "cwd": "/", "surprise": 1}',
    "a number that is none": b'{"snapshot": "a", "python": "p", "cwd": "/", "config": {"slots": "many"}}',
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_400_and_nothing_is_stored(served, client, body):
    answer = call(served, "POST", "/api/experiments", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "InvalidRequest"
    assert client.experiments() == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"slots": 0}', b'{"slots": 2, "surprise": 1}'])
def test_a_bad_resumption_is_400_and_none_at_all_is_well(served, client, body):
    submit(client)
    path = "/api/experiments/1/resume"
    assert call(served, "POST", path, content=body).status_code == 400
    assert call(served, "POST", path).status_code == 200


def test_a_bad_value_is_named_with_its_field(served):
    body = {"snapshot": "a", "python": "p", "cwd": "/", "config": {"slots": 0, "epochs": -3}}
    message = call(served, "POST", "/api/experiments", json=body).json()["message"]
    assert "config.slots: Input should be greater than or equal to 1, not 0" in message
    assert "config.epochs: Input should be greater than or equal to 1, not -3" in message


@pytest.mark.parametrize("number", ["1e309", "-1e400", "9" * 310, "9" * 5000, "9223372036854775808"])
def test_a_number_that_cannot_be_stored_is_400(served, client, number):
    id, data = archive("def model(lr: float = 0.1): ...\ndef train_data(): ...\ndef loss(): ...\n")
    client.upload_snapshot(id, data)
    submitted = {"snapshot": id, "python": "p", "cwd": "/"}
    assert call(served, "POST", "/api/experiments", json=submitted).status_code == 201
    bodies = {
        "/api/experiments": json.dumps(submitted | {"again": True, "params": {"lr": 0}}),
        "/api/experiments/1/rerun": '{"params": {"lr": 0}}',
    }
    for path, body in bodies.items():
        answer = call(served, "POST", path, content=body.replace(": 0}", f": {number}}}"))
        assert answer.status_code == 400, (path, answer.text)
        assert answer.json()["error"] == "InvalidRequest"
    assert len(client.experiments()) == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"epochs": 10**19}, "--epochs 10000000000000000000: must be at most 1,000,000,000"),
        ({"until": 10**12}, "until 1000000000000: must be at most 1,000,000,000"),
        ({"clip": "Infinity"}, "--clip inf: must be at most 1e+30"),
        ({"hang_timeout": 1e300}, "--hang-timeout"),
        ({"keep": {"best": 2**40}}, "--keep best:1099511627776,latest:2: must be at most 1,000,000,000"),
    ],
)
def test_a_number_beyond_its_bound_is_400_with_the_bound(served, client, config, said):
    id, data = archive()
    client.upload_snapshot(id, data)
    submitted = {"snapshot": id, "python": "p", "cwd": "/"}
    answer = call(served, "POST", "/api/experiments", json=submitted | {"config": config})
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert said in answer.json()["message"]
    assert call(served, "POST", "/api/experiments", json=submitted).status_code == 201
    assert call(served, "POST", "/api/experiments/1/rerun", json={"config": config}).status_code == 400


def test_an_infinite_hyperparameter_arrives_as_a_number(served, client):
    id, data = archive("def model(z=1.0, t=''): ...\ndef train_data(): ...\ndef loss(): ...\n")
    client.upload_snapshot(id, data)
    params = {"z": math.inf, "t": "Infinity"}
    overview = client.submit(Submission(snapshot=id, params=params, python="p", cwd="/"))
    assert overview.experiment.params == client.experiment(1).experiment.params == params
    token_of(served, AttemptId(1, 1, 1))
    (job,) = served.engine.jobs.values()
    assert LaunchSpec.model_validate_json(job.model_dump_json()).params == params
    answer = call(served, "GET", "/api/experiments/1").json()
    assert answer["experiment"]["params"] == {"z": {"float": "inf"}, "t": "Infinity"}


@pytest.mark.parametrize(
    "query",
    [
        "experiments?limit=0",
        "experiments?limit=many",
        "experiments?limit=1e9",
        "experiments/1/reports?after=-1",
        "experiments/1/reports?kind=gossip",
        "experiments/1/logs?rank=x",
        "experiments/1/logs?tail=0",
        "experiments/1/logs?tail=5&offset=0",
        "experiments/1/checkpoints/1/10-1/parts/model?offset=x",
        "experiments/1/curves?points=9",
        "experiments/1/curves?trial=0",
        "experiments/1/picture.png?dark=yes",
        "stream?after=x",
        "experiments?limit=%FF",
    ],
)
def test_a_bad_query_is_400_with_the_value(served, client, query):
    submit(client)
    answer = call(served, "GET", f"/api/{query}")
    assert answer.status_code == 400
    assert answer.json()["error"] == "InvalidRequest"
    assert query.split("=")[0].split("?")[1] in answer.json()["message"]


def test_a_body_beyond_the_limit_is_413(served):
    whole = call(served, "POST", "/api/experiments", content=b"x" * (8 * 2**20 + 1))
    pieces = call(served, "POST", "/api/experiments", content=(b"x" * 2**20 for _ in range(9)))
    for answer in (whole, pieces):
        assert answer.status_code == 413
        assert answer.json()["error"] == "TooLarge"


def test_a_snapshot_with_another_digest_is_refused(served):
    id, data = archive()
    wrong = "0" * 64
    assert call(served, "PUT", f"/api/snapshots/{wrong}", content=data).status_code == 400
    assert call(served, "HEAD", f"/api/snapshots/{wrong}").status_code == 404
    assert call(served, "PUT", f"/api/snapshots/{id}", content=data).status_code == 204
    assert call(served, "HEAD", f"/api/snapshots/{id}").status_code == 204


def test_a_mistake_of_the_service_is_500_without_its_insides(served, monkeypatch):
    async def broken() -> None:
        raise RuntimeError("secret insides")

    monkeypatch.setattr(served.service.pools, "statuses", broken)
    answer = call(served, "GET", "/api/pools")
    assert answer.status_code == 500
    assert answer.json()["error"] == "DaylightError"
    assert "secret" not in answer.text


def test_the_description_names_every_route_and_method(served):
    described = call(served, "GET", "/api/openapi.json").json()
    assert set(described["paths"]) == {route.path for route in ROUTES}
    for route in ROUTES:
        for method in route.operations:
            assert described["paths"][route.path][method.lower()]["summary"]


def test_every_reference_of_the_description_leads_somewhere():
    described = document(ROUTES)
    schemas = described["components"]["schemas"]

    def references(node):
        if isinstance(node, dict):
            yield from (value for key, value in node.items() if key == "$ref")
            for value in node.values():
                yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    assert {each.rsplit("/", 1)[1] for each in references(described)} <= set(schemas)
    assert asyncio.iscoroutinefunction(ROUTES[0].handler.get)
