"""Test connections without a token: many of them, silent ones, and a lack of file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tornado.iostream import IOStream

from kernel_backend import discovery
from kernel_backend.api import body_memory, connection_limits
from kernel_backend.api.cluster_page import PAGES
from kernel_backend.client import Client
from tests.accounts.unix import needed
from tests.api.served import TOKEN, Served, StillEngine
from tests.support.world import World, until

NOBODY = 65534
CROWD = """
import socket, sys, time
if len(sys.argv) > 3:
    print("ready", flush=True), sys.stdin.readline()
sockets = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("there", flush=True)
time.sleep(600)
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, StillEngine(), pages=PAGES)
    yield served
    served.stop()


@contextlib.contextmanager
def crowd(port: int, count: int, user: int | None = None) -> Iterator[None]:
    """Open many connections from another process, which send nothing."""
    command = [sys.executable if user is None else needed(), "-c", CROWD, str(port), str(count)]
    who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", **who) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield
        process.kill()


def is_open(connection: socket.socket) -> bool:
    """Return True while the service keeps the connection open."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_a_crowd_of_another_user_takes_no_room_but_its_own(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as slow, crowd(served.port, 1100, NOBODY):
        client = served.client()
        assert client.experiments() == []
        assert len(served.use.strangers) <= connection_limits.STRANGERS
        assert is_open(slow)  # the oldest of all, and not one of theirs
        slow.setblocking(True)
        slow.sendall(f"GET /api/health HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        client.close()


def test_who_has_shown_a_token_is_no_stranger(served: Served) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        http.get("/api/health", headers={"Authorization": f"Bearer {TOKEN}"})
        assert len(served.use.strangers) == 0
        http.get("/api/health", headers={"Authorization": "Bearer wrong"})
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        path = "/api/attempts/1.1-1/records"
        assert http.post(path, headers={"Authorization": "Bearer wrong"}, content=b"{").status_code == 401
        assert len(served.use.strangers) == 1


def answer(served: Served, request: str, headers: str) -> bytes:
    """Send the head of a request whose body never comes, and return the status line of the answer."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(f"{request} HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n".encode())
        return connection.recv(100).split(b"\r\n")[0]


def test_the_body_of_a_stranger_is_not_waited_for(served: Served) -> None:
    """Pages need no token, and the stream is asked for its token once the whole request is there."""
    confirm = f"/confirm/1-{'a' * 43}"
    for request in ("POST /", f"POST {confirm}", "GET /static/main-A.js", "POST ", "GET /api/stream", "GET /nothing"):
        status = answer(served, request, "Content-Length: 90000000")
        assert status in (b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 401 Unauthorized"), request


def test_bodies_of_a_user_have_a_limit_together(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_memory, "PER_CALLER", 2**20)
    token, path = f"Authorization: Bearer {TOKEN}\r\n", f"PUT /api/snapshots/{'0' * 64}"
    held = served.use.bodies._held
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as first:
        first.sendall(f"{path} HTTP/1.1\r\nHost: h\r\n{token}Content-Length: 700000\r\n\r\n{'x' * 1000}".encode())
        until(lambda: sum(held.values()) == 700_000, "it is counted")
        for length in ("Content-Length: 600000", "Transfer-Encoding: chunked"):
            assert answer(served, path, token + length) == b"HTTP/1.1 413 Request Entity Too Large", length
        with httpx.Client(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http:
            said = http.post("/api/gc", content=b"{" + b" " * 600_000).json()["message"]
            assert "are not answered yet hold 1 MiB, of at most 1: send this one (1 MiB) again once they are" in said
            assert http.post("/api/gc", content=b"{" + b" " * 300_000).status_code == 400, "there is room for it"
    until(lambda: not held, "the connection is closed")


def test_a_user_keeps_so_many_connections_open(served: Served) -> None:
    """They could take all files of the service, by streams that nobody reads."""
    served.use.connections._most = 3
    head = f"GET /api/stream HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n"
    upgrade = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: YQ==\r\n\r\n"
    )
    streams = [socket.create_connection(("127.0.0.1", served.port), timeout=20) for _ in range(5)]
    for each in streams:
        each.sendall((head + upgrade).encode())
        assert each.recv(100).startswith(b"HTTP/1.1 101")
    until(lambda: len(served.use.streams) == 3, "the oldest two are closed")
    assert [is_open(each) for each in streams[2:]] == [True] * 3
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        assert is_open(stranger)
    for each in streams:
        each.close()


def test_a_proxys_connection_counts_for_the_user_of_its_newest_request() -> None:
    limit = connection_limits.ConnectionsOfCallers(most=1)
    pairs = [socket.socketpair() for _ in range(2)]

    async def use() -> list[bool]:
        shared, own = (IOStream(ours) for ours, _ in pairs)
        for caller, stream in (("dave", shared), ("eve", shared), ("dave", own), ("dave", own)):
            limit.count(caller, stream)
        closed = [shared.closed(), own.closed()]
        limit.count("dave", shared)
        return [*closed, own.closed()]

    assert asyncio.run(use()) == [False, False, True]
    for each in (end for pair in pairs for end in pair):
        each.close()


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEADER_S", 0.2)
    served = Served(tmp_path, StillEngine())
    with socket.create_connection(("127.0.0.1", served.port)) as silent:
        silent.sendall(b"GET / HTTP/1.1\r\nHost: ")  # nor one that does not come to an end
        assert silent.recv(1) == b""
    served.stop()


def test_a_service_that_may_open_few_files_keeps_them_for_those_it_knows(tmp_path: Path) -> None:
    world = World(tmp_path, shared_forkserver=True)
    with (tmp_path / "service.log").open("ab") as log:
        command = ["sh", "-c", f"ulimit -n 200; exec {sys.executable} -m kernel_backend"]
        process = subprocess.Popen(command, env=world.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    until(lambda: discovery.find(tmp_path) is not None, "it listens")
    client, found = Client.connect(start=False, home=tmp_path), discovery.find(tmp_path)
    assert found is not None
    assert found.pid == process.pid
    with crowd(httpx.URL(found.url).port or 0, 600):
        for _ in range(3):
            client.close()  # each over a connection of its own
            assert client.experiments() == []
    assert (tmp_path / "service.log").stat().st_size < 10_000
    world.close()
    process.wait()


def test_where_no_file_is_left_strangers_go_and_it_is_said_briefly(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with httpx.Client(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http:
        assert http.get("/api/openapi.json").status_code == 200
        with crowd(served.port, 10):
            until(lambda: len(served.use.strangers) == 10, "they are accepted")
            more = subprocess.Popen(
                [sys.executable, "-c", CROWD, str(served.port), "40", "wait"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert more.stdin is not None
            assert more.stdout is not None
            assert more.stdout.readline() == "ready\n"
            highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
            taken: list[int] = []
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            try:
                more.stdin.write("go\n")
                more.stdin.flush()
                until(lambda: "no connection can be accepted" in caplog.text, "there is no file left")
                assert http.get("/api/openapi.json").status_code == 200
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for each in taken:
                    os.close(each)
                more.kill()
                more.communicate()
    assert "Exception in callback" not in caplog.text
    assert caplog.text.count("no connection can be accepted: Too many open files; ") < 100


def test_the_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(7)[1]));"
        "from kernel_backend.api.connection_limits import raise_file_limit; raise_file_limit();"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    soft, hard = map(int, done.stdout.split())
    assert soft == (connection_limits.FILES if hard == -1 else min(hard, connection_limits.FILES))
