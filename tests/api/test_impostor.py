"""Test that no token is sent if another user's process listens at the service's address."""

from __future__ import annotations

import asyncio
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from jupyterhub.services.auth import HubAuth

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.errors import ServiceUnreachable
from kernel_backend.identity.hub_api import HubApi
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from tests.accounts.unix import needed
from tests.api.served import TOKEN, Served, StillEngine
from tests.jupyter.hosted import Hosted

NOBODY = 65534
SECRET = "a-token-of-the-hub"
# Says what it hears, and answers as a service would.
IMPOSTOR = """
import socketserver, sys, threading
class Heard(socketserver.BaseRequestHandler):
    def handle(self):
        while said := self.request.recv(65536):
            print(said, flush=True)
            self.request.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
server = Server((sys.argv[1], int(sys.argv[2])), Heard)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Impostor:
    """Process of user nobody that listens on a port."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        command = [needed(), "-c", IMPOSTOR, host, str(port)]
        self._process = subprocess.Popen(
            command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def heard(self) -> str:
        """End the process, and return all that it received."""
        self._process.terminate()
        return self._process.communicate()[0]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def impostor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Impostor]:
    """Provide an impostor at the address that a hub's notebook server uses."""
    found = Impostor()
    monkeypatch.setenv("DAYLIGHT_URL", f"http://127.0.0.1:{found.port}/services/daylight")
    monkeypatch.setenv("DAYLIGHT_SERVICE_UID", str(os.getuid()))
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SECRET)
    yield found
    found.close()


ASKED: dict[str, Callable[[Client], object]] = {
    "a verb": lambda client: client.experiments(),
    "a change": lambda client: client.stop(1),
    "the stream": lambda client: next(client.watch(0, 1)),
    "a part of a checkpoint": lambda client: b"".join(client.part(1, 1, "8-1", "model")),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
def test_a_kernel_tells_another_user_nothing(impostor: Impostor, ask: Callable[[Client], object]) -> None:
    client = Client(discovery.start, patience=0.0)
    with pytest.raises(ServiceUnreachable, match=f"a process of user {NOBODY}, and not the service of user 0"):
        ask(client)
    assert impostor.heard() == ""


def test_the_command_line_tells_another_user_nothing(impostor: Impostor) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_backend.cli", "doctor"], capture_output=True, text=True, timeout=120, check=False
    )
    assert f"a process of user {NOBODY}" in done.stdout
    assert impostor.heard() == ""


def test_a_jupyter_server_tells_another_user_nothing(impostor: Impostor, tmp_path: Path) -> None:
    hosted = Hosted(tmp_path / "jupyter")
    answer = hosted.get("/api/experiments")
    assert answer.status_code == 503
    assert f"a process of user {NOBODY}" in answer.json()["message"]
    with pytest.raises(Exception, match="503"), hosted.stream():
        pass
    hosted.stop()
    assert impostor.heard() == ""


def test_a_dead_services_port_is_told_nothing(tmp_path: Path) -> None:
    """The files of the home say that the service runs, but another process has its port."""
    impostor = Impostor()
    discovery.announce(tmp_path, "127.0.0.1", impostor.port)
    with pytest.raises(ServiceUnreachable, match=f"a process of user {NOBODY}"):
        Client.at_home(tmp_path).deliver(AttemptId(1, 1, 1), SECRET, Delivery())
    assert impostor.heard() == ""


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Listen on a port of this user that answers every request like this; yield the port and the received requests."""
    heard: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while said := self.request.recv(65536):
                heard.append(said)
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], heard
        server.shutdown()


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
def test_a_redirect_leads_no_token_away(ask: Callable[[Client], object]) -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as (elsewhere, led):
        away = f"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:{elsewhere}/\r\nContent-Length: 0\r\n\r\n"
        with answering(away.encode()) as (port, heard):
            with suppress(Exception):  # what an answer without content means is no matter here
                ask(Client.at(f"http://127.0.0.1:{port}", SECRET, patience=0.0))
            assert SECRET.encode() in b"".join(heard)
        assert SECRET.encode() not in b"".join(led)


def test_a_hub_that_redirects_is_told_so_and_its_redirect_not_followed() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as (elsewhere, led):
        away = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{elsewhere}/\r\nContent-Length: 0\r\n\r\n"
        with answering(away.encode()) as (port, heard):
            auth = HubAuth(api_token=SECRET, api_url=f"http://127.0.0.1:{port}/hub/api")
            with pytest.raises(ServiceUnreachable, match="the hub answers 302 Found"):
                asyncio.run(HubApi(auth).ask("GET", "users", "list:users"))
            assert SECRET.encode() in b"".join(heard)
        assert led == []


def test_who_listens_beside_the_service_keeps_nobody_from_it(tmp_path: Path) -> None:
    served = Served(tmp_path, StillEngine())
    impostor = Impostor("127.0.0.2", served.port)
    client = Client.at(served.url, TOKEN, user=os.getuid())
    assert client.experiments() == []
    client.close()
    served.stop()
    assert impostor.heard() == ""
