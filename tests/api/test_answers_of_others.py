"""Test answers that are not Daylight's: each is said to be another program's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kernel_backend.cli import main
from kernel_backend.client import Client
from kernel_backend.errors import ServiceUnreachable
from tests.api.served import TOKEN, submit

PAGE = b"<!doctype html><html><head><title>Log in\n to Example</title></head><body>\x1b[2J</body></html>"
CALLS: list[Callable[[Client], Any]] = [
    lambda client: client.experiments(),
    lambda client: client.experiment(1),
    lambda client: client.export(1),
    lambda client: client.archive(1),
    lambda client: client.rerun(1),
    lambda client: client.me(),
]


class Page(BaseHTTPRequestHandler):
    """Program that answers each request with a page, or with JSON that is no object."""

    answer = (200, "text/html; charset=utf-8", PAGE)

    def reply(self) -> None:
        status, kind, content = self.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    def log_message(self, *_: Any) -> None: ...


for method in ("GET", "HEAD", "POST", "PUT"):
    setattr(Page, f"do_{method}", Page.reply)


@pytest.fixture
def page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("call", "status"),
    [
        *((call, status) for call in CALLS for status in (200, 302, 403, 502)),
        (lambda client: submit(client), 200),
        (lambda client: b"".join(client.part(1, 1, "10-1", "model")), 403),  # one of 200 may be a page of the user's
    ],
)
def test_a_page_of_another_program_is_said_to_be_one(
    page: str, call: Callable[[Client], Any], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Page, "answer", (status, "text/html; charset=utf-8", PAGE))
    client = Client.at(page, TOKEN, patience=0.0)
    with pytest.raises(
        ServiceUnreachable, match=rf"not of Daylight's service, .*\(HTTP {status}(: 'Log in to Example')?\)"
    ):
        call(client)


@pytest.mark.parametrize("content", [b"[]", b"null", b"{", b""])
def test_neither_is_json_that_is_no_object(page: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Page, "answer", (200, "application/json", content))
    with pytest.raises(ServiceUnreachable, match="not of Daylight's service"):
        Client.at(page, TOKEN, patience=0.0).me()


def test_the_command_line_has_no_traceback(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_URL", page)
    monkeypatch.setenv("DAYLIGHT_TOKEN", TOKEN)
    assert main(["list"]) != 0
    assert "daylight: the answer is not of Daylight's service" in capsys.readouterr().err
