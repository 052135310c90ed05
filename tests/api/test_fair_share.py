"""Test that the slow requests of one user do not delay those of another."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.fairness.threads import CALLER, SHARE
from tests.api.people import FakeHub
from tests.api.served import Served, StillEngine
from tests.support.world import until


def test_a_user_is_answered_while_a_hundred_slow_requests_of_another_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    served = Served(tmp_path, StillEngine(), identity=FakeHub())
    store, gate, begun = served.service._store, threading.Event(), list[str]()
    read = store.overviews

    def slow(*asked: Any, **options: Any) -> Any:
        begun.append(CALLER.get())
        if begun[-1] == "dave":
            gate.wait()
        return read(*asked, **options)

    monkeypatch.setattr(store, "overviews", slow)
    ask = b"GET /api/experiments HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer dave\r\n\r\n"
    crowd = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(100)]
    for each in crowd:
        each.sendall(ask)
    until(lambda: begun.count("dave") == SHARE, "their share of the threads is taken")
    danielle = served.client("danielle")
    assert danielle.experiments() == []
    assert begun.count("dave") == SHARE
    gate.set()
    for each in crowd:  # they waited, and none was refused
        assert each.recv(100).startswith(b"HTTP/1.1 200")
        each.close()
    danielle.close()
    served.stop()
