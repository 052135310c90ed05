"""Test that a service uses the hub's users and groups, or the last valid ones while the hub answers wrongly."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

pytest.importorskip("jupyterhub", reason="daylight[hub] is not installed")

from kernel_backend.errors import ServiceUnreachable
from kernel_backend.hub_mode import UnderHub
from kernel_backend.model.cluster.directory import Directory
from kernel_backend.model.cluster.quotas import Quota

PEOPLE = [{"name": f"user{number}", "groups": ["vision"]} for number in range(450)]
GROUPS = [{"name": "vision", "properties": {"daylight": {"limit": 8}}}]
NONSENSE = (b"", b"no json", b"[]", b'{"items": 3}', b'{"items": [{}], "_pagination": {"next": null}}')


class Talking(RequestHandler):
    """Hub API that returns the answers in `said` first, and valid ones afterwards."""

    said: list[bytes | int]

    def get(self, what: str) -> None:
        if self.said:
            nonsense = self.said.pop(0)
            if isinstance(nonsense, int):
                self.set_status(nonsense)
            else:
                self.finish(nonsense)
            return
        rows = PEOPLE if what == "users" else GROUPS
        offset, limit = int(self.get_query_argument("offset")), int(self.get_query_argument("limit"))
        page: list[Any] = rows[offset : offset + limit]
        following = {"offset": offset + limit} if offset + limit < len(rows) else None
        self.finish(json.dumps({"items": page, "_pagination": {"next": following}}))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide the environment variables that a hub sets for its service."""
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:10180")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/daylight/")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-services-own")
    monkeypatch.setenv("JUPYTERHUB_CLIENT_ID", "service-daylight")


def under(port: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> UnderHub:
    monkeypatch.setenv("JUPYTERHUB_API_URL", f"http://127.0.0.1:{port}/hub/api")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "the-services-own")
    return UnderHub(30, home)


@pytest.mark.usefixtures("service")
def test_the_directory_is_read_whole_whatever_was_said_before_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Talking.said = [*NONSENSE, 403, 500]
    expected = Directory(
        members={str(user["name"]): ("vision",) for user in PEOPLE}, groups={"vision": Quota(limit=8)}, complaints={}
    )

    async def heard() -> Directory:
        server, sockets = HTTPServer(Application([(r"/hub/api/(users|groups)", Talking)])), bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        hub = under(sockets[0].getsockname()[1], tmp_path, monkeypatch)
        given: asyncio.Queue[Directory] = asyncio.Queue()
        telling = asyncio.create_task(hub.keep_telling(given.put_nowait, every=0.01))
        try:
            return await asyncio.wait_for(given.get(), 60)
        finally:
            telling.cancel()
            server.stop()

    assert asyncio.run(heard()) == expected
    assert Talking.said == []


@pytest.mark.usefixtures("service")
def test_a_service_that_begins_without_its_hub_goes_by_what_it_knew_and_else_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = under(9, tmp_path, monkeypatch)
    with pytest.raises(ServiceUnreachable):
        asyncio.run(hub.first())
    known = Directory(members={"dave": ("vision",)}, groups={"vision": Quota(limit=8)})
    (tmp_path / "hub.json").write_text(json.dumps(known.to_json()))
    assert asyncio.run(hub.first()) == known
    (tmp_path / "hub.json").write_text("{")
    with pytest.raises(ServiceUnreachable):
        asyncio.run(hub.first())


@pytest.mark.usefixtures("service")
def test_what_is_started_from_the_service_does_not_find_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under(9, tmp_path, monkeypatch)
    assert "the-services-own" not in os.environ.values()
