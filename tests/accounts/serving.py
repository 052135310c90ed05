"""Run a service for Unix accounts as a program; each token identifies a user, as a hub's tokens do."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from kernel_backend.api.base import Activity
from kernel_backend.api.body_memory import SNAPSHOT_LIMIT
from kernel_backend.api.routes import application
from kernel_backend.launcher_server import LauncherServer
from kernel_backend.model.cluster.people import Person
from kernel_backend.parts import of_unix_users
from kernel_backend.service.build import build
from kernel_backend.service.context import Context
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.sql import SqlStore


class Tokens:
    """Identity provider that reads users and their tokens from a file."""

    def __init__(self, people: dict[str, dict[str, object]]) -> None:
        self._people = {token: Person.model_validate(person) for token, person in people.items()}

    async def who(self, token: str, *, remembered: bool = False) -> Person | None:
        return self._people.get(token)


async def serve(home: Path, helper: Path, port: int) -> None:
    store, launchers, use = SqlStore(home / "daylight.db"), LauncherServer(home, "127.0.0.1", 0), Activity()
    parts = of_unix_users(helper, home, store, str(home / "checkpoints"))
    service = build(
        Context(
            store=store,
            archive=Archive(home / "snapshots"),
            engine=parts.engine,
            checkpoint_storage=parts.storage,
            workspaces=parts.workspaces,
            home=home,
            url=f"http://127.0.0.1:{port}",
            pools=json.loads((home / "pools.json").read_text()),
            make=parts.make,
            marks=parts.marks,
            launcher_urls=lambda: launchers.urls,
        )
    )
    launchers.open()
    identity = Tokens(json.loads((home / "people.json").read_text()))
    server = HTTPServer(application(service, identity, use), max_body_size=SNAPSHOT_LIMIT)
    await service.start()
    server.add_sockets(bind_sockets(port, "127.0.0.1"))
    async with launchers.serving(service, use):
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
