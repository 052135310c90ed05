"""Test that a browser gets the service's answers unchanged through the Jupyter server, and from allowed routes only."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.api.committed import commit
from tests.api.served import TOKEN, keep, report, started, submit, token_of
from tests.jupyter import standin
from tests.jupyter.hosted import TOKEN as JUPYTERS
from tests.jupyter.standin import StandIn
from tests.support.world import until

READS = [
    "/api/experiments",
    "/api/experiments?limit=1",
    "/api/experiments?search=oth%65r&1732147200000",
    "/api/experiments?state=running&limit=x",
    "/api/experiments?limit=%FF",
    "/api/experiments/1",
    "/api/experiments/7",
    "/api/experiments/1/reports",
    "/api/experiments/1/reports?kind=validation&limit=1",
    "/api/experiments/1/curves?trial=1&points=100",
    "/api/experiments/1/logs",
    "/api/experiments/1/logs?offset=6&rank=0",
    "/api/experiments/1/logs?rank=4",
    "/api/experiments/1/checkpoints",
    "/api/experiments/1/checkpoints/1/10-1/files.tar",
    "/api/experiments/1/artifacts",
    "/api/experiments/1/trials/1/artifacts/net",
    "/api/experiments/1/trials/1/artifacts/a%20page",
    "/api/experiments/1/trials/1/artifacts/other",
    "/api/experiments/1/trials/2/artifacts/net",
    "/api/experiments/1/source",
    "/api/experiments/1/diff?other=2",
    "/api/experiments/1/picture.png?dark=1",
    "/api/nodes",
    "/api/health",
]
NO_ROUTES = [
    "",
    "/",
    "/api",
    "/api/nothing",
    "/api/openapi.json",
    f"/api/snapshots/{'0' * 64}",
    "/api/attempts/1.1-1/records",
    "/api/experiments/",
    "/api/experiments/1/",
    "/api/experiments/1/stop/x",
    "/api/experiments/-1",
    "/api/experiments/%31",
    "/api/experiments/1234567890",
    "/api/experiments/1/picturexpng",
    "/api/experiments/1/trials/1/artifacts/",
    "/api/experiments/1/trials/1/artifacts/../../../checkpoints",
    "/api/experiments/1/trials/1/artifacts/%2e%2e%2fx",
    "/api/experiments/../nodes",
    "/api/experiments/..%2fnodes",
    "/api/experiments/%2e%2e/nodes",
    "/api/experiments/1/logs/../../../openapi.json",
    "/api//nodes",
    "/api/nodes%3f",
    "/api/nodes%00",
    "/bundle/x",
    "/quickstart/",
    "/quickstart.ipynb",
]


@pytest.fixture
def told(served, client) -> None:
    """Provide two running experiments, the first of which has reported something."""
    submit(client)
    submit(client, name="other")
    token_of(served, AttemptId(2, 1, 1))
    token = token_of(served, AttemptId(1, 1, 1))
    client.deliver("1.1-1", token, Delivery(records=(started(), report(2), report(3, loss=float("nan")))))
    keep(served, {"net.png": b"\x89PNG", "a page.html": b"<script>"}, first=4)


@pytest.fixture
def in_its_place(home: Path) -> Iterator[Callable[..., StandIn]]:
    """Provide a function that runs a simulated service in place of the real one."""
    made: list[StandIn] = []

    def put(answer: Callable[[], bytes | None]) -> StandIn:
        made.append(StandIn(home, answer))
        return made[-1]

    yield put
    for each in made:
        each.close()


def own(served, method: str, path: str) -> httpx.Response:
    """Return the service's own answer, without the Jupyter server in between."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.request(method, served.url + path, headers=headers, timeout=120, trust_env=False)


def raw(hosted, method: str, path: str) -> tuple[int, bytes]:
    """Return status and body of a request whose path is sent unchanged."""
    connection = http.client.HTTPConnection("127.0.0.1", hosted.port, timeout=120)
    connection.putrequest(method, f"{hosted.app.base_url}daylight{path}")
    connection.putheader("Authorization", f"token {JUPYTERS}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


SECONDS = re.compile(rb"\([^()]* s\)")  # how long a phase of a start has lasted, which goes on from answer to answer


def test_what_is_read_through_the_server_is_the_services_own_answer(told, hosted, served):
    for path in READS:
        mine, its = hosted.get(path), own(served, "GET", path)
        assert (mine.status_code, mine.headers["Content-Type"]) == (its.status_code, its.headers["Content-Type"]), path
        if "picture" not in path:  # it is drawn anew each time
            assert SECONDS.sub(b"", mine.content) == SECONDS.sub(b"", its.content), path
    assert mine.json()["version"]
    assert hosted.get("/api/experiments/1/picture.png").content.startswith(b"\x89PNG")
    assert [each["name"] for each in hosted.get("/api/experiments?search=oth%65r").json()["experiments"]] == ["other"]


def test_a_checkpoint_passes_in_pieces_and_breaks_off_with_the_service(told, hosted, served, home, in_its_place):
    commit(home, 10)
    path = "/api/experiments/1/checkpoints/1/10-1/files.tar"
    mine, its = hosted.get(path), own(served, "GET", path)
    assert mine.content == its.content
    assert mine.headers["Content-Disposition"] == 'attachment; filename="checkpoint-1.1-10-1.tar"'
    large = bytes(range(256)) * 20_000
    in_its_place(lambda: standin.http(large, "Content-Disposition: attachment"))
    assert hosted.get(path).content == large
    in_its_place(lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Disposition: attachment\r\n\r\nshort")
    with pytest.raises(httpx.RemoteProtocolError):
        hosted.get(path)


def test_what_was_kept_is_shown_or_saved_as_the_service_says(told, hosted):
    said = {name: hosted.get(f"/api/experiments/1/trials/1/artifacts/{name}").headers for name in ("net", "a%20page")}
    assert [each["Content-Disposition"] for each in said.values()] == [
        'inline; filename="net.png"',
        'attachment; filename="a page.html"',
    ]
    for each in said.values():
        assert each["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in each["Content-Security-Policy"]


def test_an_experiment_is_paused_resumed_and_stopped(told, hosted, client):
    assert hosted.post("/api/experiments/1/pause").json()["id"] == 1
    until(lambda: client.experiment(1).trials[0].holds, "the trial is held")
    hosted.post("/api/experiments/1/resume").raise_for_status()
    until(lambda: not client.experiment(1).trials[0].holds, "nothing holds the trial")
    assert hosted.post("/api/experiments/1/stop", content=b"x" * 3_000_000).json()["experiment"]["state"] == "stopping"
    assert client.experiment(1).experiment.state == "stopping"
    assert client.experiment(2).experiment.state == "active"


def test_what_the_service_refuses_is_refused_in_its_words(told, hosted, served):
    hosted.post("/api/experiments/1/stop").raise_for_status()
    for path in ("/api/experiments/1/pause", "/api/experiments/7/stop"):
        mine, its = hosted.post(path), own(served, "POST", path)
        assert mine.status_code == its.status_code >= 400
        assert mine.json() == its.json()


def test_a_search_is_steered_in_the_services_words(told, hosted, served):
    for path in ("trials/1/promote", "trials/7/prune"):  # of an experiment that is no search
        mine, its = hosted.post(f"/api/experiments/1/{path}"), own(served, "POST", f"/api/experiments/1/{path}")
        assert mine.status_code == its.status_code >= 400
        assert mine.json() == its.json()
    assert "is no search" in hosted.post("/api/experiments/1/extend", json={"trials": 9}).json()["message"]


def test_of_a_body_only_what_extends_a_search_goes_on(hosted, in_its_place):
    service = in_its_place(lambda: standin.http(b"{}"))
    for body in (b"", b"{", b'{"trials": 0}', b'{"trials": 9, "owner": "eve"}', b"[9]"):
        refused = hosted.post("/api/experiments/1/extend", content=body)
        assert (refused.status_code, refused.json()["error"]) == (400, "InvalidRequest")
    assert service.heard == []
    hosted.post("/api/experiments/1/extend", content=b' {"budget" : 3.5, "trials": 9, "max_time": null}')
    (heard,) = service.heard
    assert heard.startswith(b"POST /api/experiments/1/extend HTTP/1.1\r\n")
    assert heard.endswith(b'\r\n\r\n{"trials":9,"budget":3.5}')


def test_a_rerun_takes_its_changes_along_or_none(hosted, in_its_place):
    service = in_its_place(lambda: standin.http(b"{}"))
    path = "/api/experiments/1/rerun"
    assert hosted.post(path, content=b'{"owner": "eve"}').json()["error"] == "InvalidRequest"
    assert service.heard == []
    hosted.post(path)
    hosted.post(path, json={"params": {"lr": 0.1}})
    plain, changed = service.heard
    assert plain.startswith(b"POST /api/experiments/1/rerun HTTP/1.1\r\n")
    assert plain.endswith(b"\r\n\r\n")
    assert changed.endswith(b'\r\n\r\n{"params":{"lr":0.1},"config":{},"note":"","tags":[]}')


def test_the_quickstart_is_read_without_the_service(hosted, in_its_place):
    service = in_its_place(lambda: standin.http(b"{}"))
    answer = hosted.get("/quickstart")
    assert answer.content == (Path(__file__).parents[2] / "binder" / "quickstart.ipynb").read_bytes()
    assert answer.headers["Content-Type"].startswith("application/json")
    assert service.heard == []


def test_what_is_no_route_of_ours_reaches_none_of_the_services(hosted, in_its_place):
    service = in_its_place(lambda: standin.http(b'{"secret": 1}'))
    for path in NO_ROUTES:
        for method in ("GET", "POST", "PUT", "DELETE"):
            status, body = raw(hosted, method, path)
            assert status == 404, (method, path)
            assert b'"error": "NotFound"' in body
            assert b"secret" not in body
        assert raw(hosted, "HEAD", path)[0] == 404
    assert service.heard == []


def test_other_methods_of_a_route_are_refused(hosted, in_its_place):
    service = in_its_place(lambda: standin.http(b"{}"))
    for method, path in (
        ("POST", "/api/experiments"),
        ("PUT", "/api/nodes"),
        ("POST", "/quickstart"),
        ("GET", "/api/experiments/1/stop"),
    ):
        status, body = raw(hosted, method, path)
        assert status == 405
        assert b'"error": "MethodNotAllowed"' in body
    assert service.heard == []


def test_nothing_of_the_browsers_reaches_the_service_but_path_and_query(hosted, in_its_place):
    service = in_its_place(lambda: standin.http(b"{}"))
    query = f"limit=3&token={JUPYTERS}&search=a%20b%26+c&t%6Fken={JUPYTERS}&token&x"
    hosted.get(f"/api/experiments?{query}", headers={"Cookie": "login=cookie-of-jupyter", "X-Secret": "browsers"})
    hosted.post(f"/api/experiments/1/stop?token={JUPYTERS}", content=b"body-of-the-browser")
    read, act = service.heard
    assert read.startswith(b"GET /api/experiments?limit=3&search=a%20b%26+c&x HTTP/1.1\r\n")
    assert act.startswith(b"POST /api/experiments/1/stop HTTP/1.1\r\n")
    for heard in (read, act):
        assert f"Authorization: Bearer {standin.TOKEN}\r\n".encode() in heard
        for foreign in (JUPYTERS.encode(), b"ookie", b"browser"):
            assert foreign not in heard
        assert heard.count(b"Authorization") == 1


def test_of_the_services_headers_only_the_media_type_reaches_the_browser(hosted, in_its_place):
    headers = ("Connection: close", "Set-Cookie: a=b", "Keep-Alive: timeout=5", f"X-Token: {standin.TOKEN}")
    in_its_place(lambda: standin.http(b'{"a": 1}', *headers))
    answer = hosted.get("/api/nodes")
    assert answer.json() == {"a": 1}
    assert not {"keep-alive", "x-token", "connection"} & set(answer.headers)
    assert "a" not in answer.cookies
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_services_token_never_reaches_the_browser(told, hosted):
    for path in READS:
        answer = hosted.get(path)
        assert TOKEN.encode() not in answer.content, path
        assert TOKEN not in str(answer.headers), path


def test_the_service_sends_the_browser_nowhere_else(hosted, in_its_place):
    away = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\n{}"
    service = in_its_place(lambda: away)
    answer = hosted.get("/api/nodes")
    assert (answer.status_code, len(service.heard)) == (302, 1)
    assert "Location" not in answer.headers
