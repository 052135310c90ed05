"""Test requests that make something and whose answers are lost: they are repeated, and make one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_ext.server.proxy import Proxy
from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.discovery import Address
from kernel_backend.errors import ServiceUnreachable
from kernel_backend.model.versions import REQUEST
from tests.api.served import TOKEN, Served, ended, submit
from tests.api.test_either_pool import first
from tests.api.test_same_again import submit as submit_once


class Cutting(ThreadingHTTPServer):
    """Proxy before a service, which cuts the connection in place of the first answers to POSTs; old: it hides ids."""

    def __init__(self, served: Served, cuts: int = 2, old: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.there, self.cuts, self.old = served.url, cuts, old
        self.posted: list[str | None] = []  # ids of requests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Cutting

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if not (self.server.old and name == REQUEST)}
        answer = httpx.request(self.command, self.server.there + self.path, content=body, headers=headers)
        if self.command == "POST":
            self.server.posted.append(self.headers.get(REQUEST))
            if len(self.server.posted) <= self.server.cuts:
                self.close_connection = True
                return
        self.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if not (self.server.old and name.lower() == REQUEST.lower()) and name.lower() != "connection":
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    def log_message(self, *_: Any) -> None: ...


for method in ("GET", "HEAD", "POST", "PUT"):
    setattr(_Handler, f"do_{method}", _Handler.forward)


@pytest.fixture
def cutting(served: Served) -> Iterator[Callable[..., Cutting]]:
    opened: list[Cutting] = []

    def start(**options: Any) -> Cutting:
        opened.append(Cutting(served, **options))
        threading.Thread(target=opened[-1].serve_forever, daemon=True).start()
        return opened[-1]

    yield start
    for each in opened:
        each.shutdown()
        each.server_close()


def far(proxy: Cutting) -> Client:
    return Client.at(proxy.url, TOKEN, patience=30.0)


def test_a_submission_whose_answer_is_lost_is_repeated_and_is_one(cutting: Any, served: Served, client: Client) -> None:
    proxy = cutting()
    assert submit_once(far(proxy)) == (1, True), "the answer to the third is that to the first"
    assert len(proxy.posted) == 3
    assert len(set(proxy.posted)) == 1
    assert submit(far(cutting())).experiment.number == 2, "one that is meant to be another is one more"
    assert [each.experiment.number for each in client.experiments()] == [2, 1]
    assert [each.number for each in served.service._store.unfinished_experiments()] == [1, 2]


def test_what_is_repeated_while_it_is_under_way_is_one(served: Served, client: Client) -> None:
    submit(client)
    header = {"Authorization": f"Bearer {TOKEN}", REQUEST: "0" * 32}
    url = f"{served.url}/api/experiments/1/rerun"
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: httpx.post(url, headers=header, timeout=60.0).json(), range(4)))
    assert {each["experiment"]["number"] for each in answers} == {2}
    assert len(client.experiments()) == 2
    assert httpx.post(url, headers=header | {REQUEST: "x"}).json()["message"].startswith(f"{REQUEST}: 'x' is no id")


def test_a_rerun_is_one_though_nothing_was_asked_before(cutting: Any, served: Served, client: Client) -> None:
    submit(client)
    ended(served, client, first(1))
    assert far(cutting()).rerun(1).experiment.number == 2
    assert len(client.experiments()) == 2


def test_a_webhook_whose_answer_is_lost_is_one_and_has_its_secret(cutting: Any, client: Client) -> None:
    added = far(cutting()).add_webhook("http://127.0.0.1:9/")
    assert [each.id for each in client.webhooks()] == [added.id]
    assert added.secret
    assert client.add_webhook("http://127.0.0.1:9/").id == 2, "one that is meant to be another is one more"


def test_an_older_service_is_not_asked_twice(cutting: Any, client: Client) -> None:
    proxy = cutting(old=True)
    with pytest.raises(ServiceUnreachable, match="did not answer /api/experiments"):
        submit(far(proxy))
    assert len(proxy.posted) == 1
    assert len(client.experiments()) == 1


def test_the_command_line_says_what_was_accepted(
    cutting: Any, client: Client, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_URL", cutting().url)
    monkeypatch.setenv("DAYLIGHT_TOKEN", TOKEN)
    assert main(["submit", str(file), "--quiet"]) == 0
    assert "1" in capsys.readouterr().out
    assert len(client.experiments()) == 1


def test_a_rerun_from_a_page_is_one(cutting: Any, client: Client) -> None:
    submit(client)
    proxy = cutting(cuts=1)

    class Found:
        async def address(self) -> Address:
            return Address(proxy.url, TOKEN)

        def lost(self) -> None: ...

    async def ask() -> int:
        answer = await Proxy(Found(), 30.0, logging.getLogger()).ask("POST", "/api/experiments/1/rerun")  # type: ignore[arg-type]
        return answer.status

    assert asyncio.run(ask()) == 201
    assert len(proxy.posted) == 2
    assert len(client.experiments()) == 2
