"""Test that every registered handler answers only users whom Jupyter admits."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.utils import JupyterServerAuthWarning
from tornado.web import RequestHandler
from websockets.exceptions import InvalidStatus

from jupyter_ext.server.extension import ACTS, CHANGES, NUMBER, ONE, READS, DaylightExtension
from kernel_backend import discovery
from kernel_backend.model.ids import AttemptId
from tests.api.served import TOKEN as SERVICES
from tests.api.served import submit, token_of
from tests.jupyter.hosted import TOKEN, Hosted

STRANGERS: dict[str, dict[str, Any]] = {
    "no token": {},
    "a wrong token": {"headers": {"Authorization": "token wrong"}},
    "a wrong token in the address": {"params": {"token": "wrong"}},
    "a cookie that nobody signed": {"headers": {"Cookie": "username-127-0-0-1=me; login=1"}},
    "the service's token": {"headers": {"Authorization": f"Bearer {SERVICES}"}},
}


class ReadOnly(Authorizer):
    """Authorizer that allows users to read Daylight's resources, and nothing else."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        """Allow only reads of `daylight`."""
        return (action, resource) == ("read", "daylight")


class Closed(Authorizer):
    """Authorizer that allows everything except Daylight's resources."""

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        """Allow everything but `daylight`."""
        return resource != "daylight"


@pytest.fixture(params=[True, False], ids=["open by default", "closed by default"])
def guarded(request, home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """Provide a server in each mode of Jupyter: handlers without authentication are served, or refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", JupyterServerAuthWarning)
        hosted = Hosted(tmp_path / "jupyter", ServerApp={"allow_unauthenticated_access": request.param})
    yield hosted
    hosted.stop()


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a handler even looks for the service."""

    def looked(*_: Any, **__: Any) -> None:
        raise AssertionError("a stranger made us look for the service")

    monkeypatch.setattr(discovery, "find", looked)
    monkeypatch.setattr(discovery, "start", looked)


def registered(hosted: Hosted) -> list[tuple[str, type[RequestHandler]]]:
    """Return pattern and handler of all of Daylight's routes in the server."""

    def rules(router: Any) -> Iterator[Any]:
        for rule in router.rules:
            if hasattr(rule.target, "rules"):
                yield from rules(rule.target)
            else:
                yield rule

    found = [(rule.matcher, rule.target) for rule in rules(hosted.app.web_app.default_router)]
    return [
        (matcher.regex.pattern, handler)
        for matcher, handler in found
        if isinstance(handler, type) and handler.__module__.startswith("jupyter_ext")
    ]


def calls(hosted: Hosted) -> list[tuple[str, str]]:
    """Return each method that one of Daylight's handlers implements, with an address that leads to it."""
    found = []
    for pattern, handler in registered(hosted):
        path = re.sub(r"\\(.)", r"\1", pattern.replace(NUMBER, "1").replace("(?:/.*)?", "/whatever").rstrip("$"))
        methods = [m for m in handler.SUPPORTED_METHODS if getattr(handler, m.lower()) != RequestHandler.get]
        found += [(method, path) for method in methods]
    return found


def test_the_walk_meets_every_route_of_the_table(hosted):
    table = DaylightExtension().routes()
    assert [handler for _, handler in registered(hosted)] == [handler for _, handler, _ in table]
    assert len({pattern for pattern, _ in registered(hosted)}) == len(table)
    met = calls(hosted)
    for call in [
        ("GET", "/user/dave/daylight/api/experiments/1/picture.png"),
        ("POST", "/user/dave/daylight/api/experiments/1/stop"),
        ("POST", "/user/dave/daylight/bundle/1"),
        ("GET", "/user/dave/daylight/quickstart"),
        ("GET", "/user/dave/daylight/api/stream"),
        ("DELETE", "/user/dave/daylight/whatever"),
    ]:
        assert call in met


def test_the_reference_names_every_route_and_setting():
    pages = Path(__file__).parents[2] / "docs" / "reference"
    section = (pages / "server-extension.md").read_text(encoding="utf-8")
    assert "http.md#verbs-of-an-experiment" in section
    section += "".join(
        re.findall(r"^\| `POST .* \| yes \|$", (pages / "http.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    paths = [path for path in (*READS, *ACTS, *CHANGES) if path != ONE]
    assert [path for path in paths if f"{path.rpartition('/')[2]}`".replace("{}", "{name}") not in section] == []
    assert [name for name in DaylightExtension.class_own_traits(config=True) if f".{name}`" not in section] == []
    assert "`GET daylight/api/stream?after=SEQ&experiment=N`" in section
    assert "`POST daylight/bundle/{number}`" in section
    assert "`GET daylight/quickstart`" in section


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
def test_no_handler_answers_a_stranger(guarded, untouched, stranger):
    browser = httpx.Client(base_url=f"http://127.0.0.1:{guarded.port}", timeout=60, trust_env=False)
    for method, path in calls(guarded):
        browser.cookies.clear()
        answer = browser.request(method, path, **stranger)
        if method == "OPTIONS":  # what a browser of another host asks before it asks; Jupyter tells it what may be sent
            assert (answer.status_code, answer.content) == (200, b""), path
            continue
        assert answer.status_code == 403, (method, path)
        if method != "HEAD":
            assert answer.json()["error"] == "Forbidden"
            assert "reload the page" in answer.json()["message"]


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
def test_the_stream_answers_no_stranger(guarded, untouched, stranger):
    query = f"?token={stranger['params']['token']}" if "params" in stranger else ""
    with pytest.raises(InvalidStatus) as refused, guarded.stream(query, additional_headers=stranger.get("headers", {})):
        pass
    assert refused.value.response.status_code == 403
    assert b'"error": "Forbidden"' in refused.value.response.body


def test_a_page_of_another_host_gets_nothing_with_the_cookies_of_its_visitor(hosted, served, untouched):
    visitor = logged_in(hosted)
    elsewhere = {"Origin": "http://evil.example", "Referer": "http://evil.example/"}
    token = {"X-XSRFToken": visitor.cookies["_xsrf"]}
    assert visitor.get(f"{hosted.url}/api/nodes", headers=elsewhere).status_code == 404
    assert visitor.post(f"{hosted.url}/api/experiments/1/stop", headers=elsewhere | token).status_code in (403, 404)
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    with pytest.raises(InvalidStatus) as refused, hosted.stream(additional_headers=elsewhere | {"Cookie": cookies}):
        pass
    assert refused.value.response.status_code == 403
    assert b"other hosts" in refused.value.response.body


def test_a_page_of_the_servers_own_acts_with_its_cookies_and_the_xsrf_token_alone(hosted, served, client):
    submit(client)
    token_of(served, AttemptId(1, 1, 1))  # it trains: one that still waits stops at once
    page = logged_in(hosted)
    home = {"Origin": f"http://127.0.0.1:{hosted.port}"}
    for path in ("/api/experiments/1/stop", "/bundle/1"):
        answer = page.post(hosted.url + path, headers=home, json={"captured": []})
        assert answer.status_code == 403
        assert "_xsrf" in answer.json()["message"]
    assert client.experiment(1).experiment.state == "active"
    token = {"X-XSRFToken": page.cookies["_xsrf"]}
    assert page.post(f"{hosted.url}/api/experiments/1/stop", headers=home | token).status_code == 200
    assert client.experiment(1).experiment.state == "stopping"
    cookies = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
    with hosted.stream("?after=0", additional_headers=home | {"Cookie": cookies}) as socket:
        assert '"seq":1' in str(socket.recv(timeout=120))


def test_whom_the_authorizer_denies_is_refused(home, tmp_path, untouched):
    hosted = Hosted(tmp_path / "jupyter", ServerApp={"authorizer_class": Closed})
    try:
        for method, path in calls(hosted):
            answer = hosted.http.request(method, f"http://127.0.0.1:{hosted.port}{path}", json={"captured": []})
            if method not in ("OPTIONS", "HEAD"):
                assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden"), (method, path)
                assert "daylight" in answer.json()["message"]
        with pytest.raises(InvalidStatus) as refused, hosted.stream():
            pass
        assert refused.value.response.status_code == 403
    finally:
        hosted.stop()


def test_who_may_only_look_can_look_and_not_act(served, client, tmp_path):
    submit(client)
    hosted = Hosted(tmp_path / "jupyter", ServerApp={"authorizer_class": ReadOnly})
    try:
        assert hosted.get("/api/experiments/1").status_code == 200
        assert hosted.post("/bundle/1", json={"captured": []}).status_code == 200
        with hosted.stream("?after=0") as socket:
            assert '"seq":1' in str(socket.recv(timeout=120))
        for path in (*ACTS, *CHANGES):
            assert hosted.post(path.format(1, 1, "10-1")).status_code == 403
        assert client.experiment(1).experiment.state == "active"
    finally:
        hosted.stop()


def logged_in(hosted: Hosted) -> httpx.Client:
    """Log a browser in: from then on it has cookies instead of the token."""
    browser = httpx.Client(trust_env=False, timeout=120)
    root = f"http://127.0.0.1:{hosted.port}/user/dave/"
    browser.get(f"{root}api/status", params={"token": TOKEN}).raise_for_status()
    browser.get(f"{root}login", follow_redirects=True)  # the page that sets _xsrf
    assert "_xsrf" in browser.cookies
    return browser
