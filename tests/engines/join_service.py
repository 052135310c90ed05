"""Serve the requests of launchers on an engine's nodes, with a real server over a real store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from kernel_backend.api.base import Activity
from kernel_backend.api.routes import launcher_application
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.nodes import GangNode
from kernel_backend.model.node_faults import NodeFault, NodeName
from kernel_backend.model.reports import Delivery, Instruction
from kernel_backend.service.loop.gang_nodes import GangNodes
from kernel_backend.service.notifier import Notifier
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore
from tests.support.empty_database import empty_database


async def _blame(faults: Iterable[NodeFault]) -> frozenset[NodeName]:
    """Exclude no node."""
    return frozenset()


class Joined:
    """Mixin for engines that registers each submitted gang with a service for its launchers."""

    joins: Joins

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Submit a gang whose launchers can join."""
        engine: Any = super()
        await engine.submit(self.joins.of(job).expect(job), token)


class JoinedEngine(Joined, SlurmEngine):
    """Slurm engine whose gangs' launchers can join."""


class Joins:
    """Services of attempts by home; each is created for the attempt's first gang, as gangs of a trial may overlap."""

    def __init__(self, folder: Path, until: contextlib.ExitStack) -> None:
        self._folder, self._until = folder, until
        self._known: dict[tuple[str, int], JoinService] = {}

    def of(self, job: LaunchSpec) -> JoinService:
        """Return the service of an attempt."""
        key = job.home, job.attempt
        if key not in self._known:
            folder = self._folder / f"joins-{len(self._known)}"
            folder.mkdir()
            self._known[key] = self._until.enter_context(JoinService(folder).listening())
        return self._known[key]

    def nodes(self, key: AttemptId) -> tuple[GangNode, ...]:
        """Return the nodes on which a gang of the only home has started."""
        (service,) = (each for (_, number), each in self._known.items() if number == key.number)
        return service.store.attempt(key).nodes


class AnyToken:
    """Calls of launchers, with whatever token: that tokens are checked is tested with the real service."""

    async def check(self, key: AttemptId, token: str) -> None:
        """Accept the token."""

    async def deliver(self, key: AttemptId, token: str, delivery: Delivery) -> Instruction:
        """Accept the records of rank 0."""
        return Instruction(accepted=delivery.records[-1].number if delivery.records else 0)


class JoinService:
    """Service for the launchers of one attempt."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._databases = folder, itertools.count()
        self.urls: tuple[str, ...] = ()
        self.attempts = AnyToken()
        self._loop = asyncio.new_event_loop()
        self._begin()

    def _begin(self) -> None:
        self.store = SqlStore(empty_database(self._folder / f"joins-{next(self._databases)}.db"))
        fields: dict[str, Any] = {"name": "", "owner": "ada", "group": "ada", "python": "python", "cwd": "/"}
        draft = NewExperiment(config=Config(slots=1), params={}, snapshot="0" * 64, **fields)
        self.store.add_experiment(draft, 1.0)
        self.gang_nodes = GangNodes(self.store, lambda pool: None, Notifier(), lambda: None, _blame)

    def expect(self, job: LaunchSpec) -> LaunchSpec:
        """Register an attempt, and return its launch spec with this service's address."""
        if any(each.number == job.attempt and each.nodes for each in self.store.attempts(1, 1)):
            self._begin()  # a service whose database was lost knows no such attempt
        if not self.store.attempts(1, 1):
            self.store.add_attempt(1, 1, job.placement, None, "", 2.0, beyond=job.attempt - 1, granted=False)
        return job.model_copy(update={"service_urls": self.urls})

    @contextlib.contextmanager
    def listening(self) -> Iterator[JoinService]:
        """Serve on a free port of all addresses during the block."""
        begun = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._serve(begun))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert begun.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(30)

    async def _serve(self, begun: threading.Event) -> None:
        self._stop = asyncio.Event()
        served: Any = self
        server = HTTPServer(launcher_application(served, Activity()))
        sockets = bind_sockets(0, "0.0.0.0")
        server.add_sockets(sockets)
        self.urls = (f"http://127.0.0.1:{sockets[0].getsockname()[1]}",)
        begun.set()
        await self._stop.wait()
        server.stop()
        await server.close_all_connections()
