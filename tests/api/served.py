"""Run a real service (SQLite, archive, tornado on a free port) over an engine whose gangs end only on command."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.netutil import bind_sockets
from tornado.web import RequestHandler

from kernel_backend.api.base import Activity
from kernel_backend.api.connection_limits import LimitedServer
from kernel_backend.api.routes import application
from kernel_backend.checkpoints.base import digest
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.client import Client
from kernel_backend.engines.base import Caps, CheckContext, GangStatus
from kernel_backend.errors import NotFound
from kernel_backend.home import artifact_folder
from kernel_backend.identity.base import Identity
from kernel_backend.identity.local import LocalIdentity
from kernel_backend.launch.spool import read_page
from kernel_backend.model.artifacts import file_of, media_of
from kernel_backend.model.cluster.idle import IdleRule
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import (
    ArtifactSaved,
    AttemptResult,
    Delivery,
    Measurements,
    Report,
    SpoolPage,
    SpoolPosition,
    Started,
)
from kernel_backend.model.resources import Node
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure
from kernel_backend.model.views.overview import LogChunk, Overview
from kernel_backend.scheduler.rules import Rules
from kernel_backend.service.build import build
from kernel_backend.service.context import Context
from kernel_backend.service.effective_quotas import StoredQuotas
from kernel_backend.service.outbox.config import OutboxConfig
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.sql import SqlStore
from kernel_backend.workspaces.own import OwnWorkspace, SingleWorkspace
from tests.support.empty_database import empty_database
from tests.support.world import PATIENCE_S, until

TOKEN = "the-right-token"
DEFINITION = """\
def model(width=8):
    return None
def train_data():
    return []
def validation_data():
    return []
def optimizer(params, lr=0.1):
    return None
def loss(output, target):
    return 0
"""


SECOND = PoolSettings(engine="slurm", partition="second")
HERE = Node(name="here", kind="cpu", address="127.0.0.1", slots=2, cores=2)


class StillEngine:
    """Engine of two CPU slots or other nodes, whose gangs do nothing, and end only on command.

    It records specs and tokens.
    """

    name = "local"
    caps = Caps(atomic_gang=True, preemption=False, quota=False, multi_node=False, per_user_identity=False)

    def __init__(self, nodes: Sequence[Node] = (HERE,), spools: Path = Path("/nonexistent")) -> None:
        """Create the engine; `spools` is a folder in which a test writes the spools of gangs: `<key>.jsonl`."""
        self.there, self.spools = list(nodes), spools
        self.broken = ""  # what it says in place of its nodes and gangs; "": it answers
        self.jobs: dict[AttemptId, LaunchSpec] = {}
        self.tokens: dict[AttemptId, str] = {}
        self.ended: dict[AttemptId, GangStatus] = {}
        self.forgotten: set[AttemptId] = set()
        self.measured: tuple[Measurements, ...] = ()  # what the launchers of each gang have left at its end

    async def nodes(self) -> list[Node]:
        if self.broken:
            raise OSError(self.broken)
        return self.there

    async def submit(self, job: LaunchSpec, token: str) -> None:
        self.jobs[job.id], self.tokens[job.id] = job, token

    async def statuses(self) -> list[GangStatus]:
        return [self.ended.get(key) or GangStatus(key=key, phase="running") for key in self.jobs]

    async def release(self, key: AttemptId) -> None: ...

    async def kill(self, key: AttemptId) -> None:
        self.jobs.pop(key, None)

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        page = await asyncio.to_thread(read_page, self.spools / f"{key}.jsonl", begin, after)
        return page.model_copy(update={"measured": self.measured})

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        if rank > 0:
            raise NotFound(f"attempt {key} has no rank {rank}")
        text = b"hello\nworld\n"[offset:].decode() if tail is None else "world\n"
        return LogChunk(attempt=key.number, rank=rank, text=text, offset=12, size=12, ended=key in self.forgotten)

    async def set_aside(self, key: AttemptId) -> None:
        await self.kill(key)

    async def forget(self, key: AttemptId) -> None:
        self.ended.pop(key, None)
        self.forgotten.add(key)

    async def check(self, context: CheckContext) -> list[PoolFinding]:
        return [PoolFinding(name="python", ok=True, says=context.python)]

    def end(self, key: AttemptId, failure: Failure | None = None) -> None:
        """End a gang successfully, or with this failure."""
        outcome = Outcome.FAILED if failure else Outcome.OK
        result = AttemptResult(outcome=outcome.value, exit_codes=(1 if failure else 0,), failure=failure, ended_at=1.0)
        self.ended[key] = GangStatus(key=key, phase="ended", outcome=outcome, result=result)

    def step_aside(self, key: AttemptId) -> None:
        """End a gang that was asked to exit."""
        result = AttemptResult(outcome="released", exit_codes=(85,), ended_at=1.0)
        self.ended[key] = GangStatus(key=key, phase="ended", outcome=Outcome.RELEASED, result=result)


@dataclass
class Served:
    """Service that listens, in its own thread."""

    home: Path
    engine: StillEngine
    port: int = 0
    identity: Identity = field(default_factory=lambda: LocalIdentity(TOKEN))
    pages: Sequence[tuple[str, type[RequestHandler]]] = ()
    rules: Rules | None = None
    each_user: Quota | None = None
    local_price: float | None = None
    idle_rule: IdleRule = field(default_factory=IdleRule)
    keep_logs: float | None = None
    keep_reports: float | None = None
    pools: Mapping[str, Any] = field(default_factory=dict)
    default_pool: str = ""
    configured_in: str = "the service's configuration"
    closed: bool = False
    outbox: OutboxConfig = field(default_factory=OutboxConfig)
    others: dict[str, StillEngine] = field(default_factory=dict)  # engines of the other pools, by name

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.run(self._start())

    def make(self, pool: Pool) -> StillEngine:
        """Create the engine of another pool, of one node with two slots, unless a test has put one there."""
        node = Node(name=f"{pool.name}-1", kind="cpu", address="127.0.0.1", slots=2, cores=2, pool=pool.name)
        return self.others.setdefault(pool.name, StillEngine((node,)))

    @property
    def roster(self) -> StoredQuotas:
        """Return the service's stored quotas, which a test may change."""
        return self.service.stored_quotas

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, work: Any) -> Any:
        """Run a coroutine in the service's event loop, and return its result."""
        waiting: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return waiting.result(PATIENCE_S)

    def client(self, token: str = TOKEN, patience: float = 30.0) -> Client:
        return Client.at(self.url, token, patience)

    def cut(self) -> int:
        """Close all websockets, as a network failure would, and return their number."""

        async def close() -> int:
            for stream in (streams := list(self.use.streams)):
                stream.ws_connection.stream.close()
            return len(streams)

        return int(self.run(close()))

    async def _start(self) -> None:
        store = SqlStore(empty_database(self.home / "daylight.db"))
        self.service = build(
            Context(
                store=store,
                archive=Archive(self.home / "snapshots"),
                engine=self.engine,
                checkpoint_storage=CheckpointStorage(str(self.home / "checkpoints"), store.trial_uid),
                workspaces=SingleWorkspace(OwnWorkspace(self.home, closed=self.closed)),
                closed=self.closed,
                home=self.home,
                rules=self.rules or Rules(),
                each_user=self.each_user,
                local_price=self.local_price,
                idle_rule=self.idle_rule,
                keep_logs=self.keep_logs,
                keep_reports=self.keep_reports,
                pools=self.pools,
                default_pool=self.default_pool,
                configured_in=self.configured_in,
                make=self.make,
                outbox=self.outbox,
                launcher_urls=lambda: (self.url,),
            )
        )
        self.use = Activity()
        app = application(self.service, self.identity, self.use, pages=self.pages)
        self._server = LimitedServer(app, self.use.strangers)
        sockets = bind_sockets(self.port, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        await self.service.start()
        self._server.add_sockets(sockets)

    async def _stop(self) -> None:
        self._server.stop()
        for stream in list(self.use.streams):
            stream.close(1001)
        await self._server.close_all_connections()
        await self.service.close()

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


def archive(definition: str = DEFINITION, **about: Any) -> tuple[str, bytes]:
    """Return the id and the zip of a snapshot; `about` has further fields of its description."""
    environment = Environment(
        python="3.11.7", implementation="CPython", platform="Linux", cpu="any", cores=2, distributions={}
    )
    lines = definition.count("\n")
    piece = Piece(cell=4, line=1, count=lines, cell_line=1)
    snapshot = Snapshot(version="0.1.0", numerics=1, pieces=(piece,), roles_from=1, environment=environment, **about)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in (("definition.py", definition), ("snapshot.json", json.dumps(snapshot.to_json()))):
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return hashlib.sha256(packed.getvalue()).hexdigest(), packed.getvalue()


def submit(client: Client, name: str = "digits", **config: Any) -> Overview:
    """Submit a new experiment with the small definition."""
    id, data = archive()
    client.upload_snapshot(id, data)
    python = "/usr/bin/python3"
    asked = Submission(snapshot=id, config=Config(**config), name=name, python=python, cwd="/", again=True)
    return client.submit(asked)


def paused(served: Served, client: Client, key: AttemptId) -> None:
    """Pause the experiment of a running attempt, and end its gang."""
    token_of(served, key)
    client.pause(key.experiment)
    served.engine.step_aside(key)
    until(lambda: client.experiment(key.experiment).trials[0].state == "paused", f"#{key.experiment} is paused")


def ended(served: Served, client: Client, key: AttemptId) -> None:
    """Complete the experiment of a running attempt."""
    client.deliver(key, token_of(served, key), Delivery(records=(started(),)))
    served.engine.end(key)
    until(lambda: client.experiment(key.experiment).ended, f"#{key.experiment} has ended")  # its trial shows it before


def started(number: int = 1, total: int = 900) -> Started:
    facts = {"backend": "torch", "reason": "chosen", "world": 1, "steps_per_epoch": 9, "parameters": 3}
    return Started.model_validate({"number": number, "at": 1.0, "total_steps": total, **facts})


def keep(served: Served, files: Mapping[str, bytes], first: int = 1) -> Path:
    """Save artifacts (by file name) for trial 1.1, in records from number `first` on; return their folder."""
    folder, records = artifact_folder(served.home, 1, 1), []
    folder.mkdir(parents=True, exist_ok=True)
    for number, (file, data) in enumerate(files.items(), first):
        name = Path(file).stem
        (folder / name).write_bytes(data)
        called = file_of(name, Path(file))
        about = {"size": len(data), "digest": digest(data), "media": media_of(called), "file": called, "step": 3}
        records.append(ArtifactSaved.model_validate({"number": number, "at": 5.0, "name": name, **about}))
    key, client = AttemptId(1, 1, 1), served.client()
    client.deliver(key, token_of(served, key), Delivery(records=tuple(records)))
    client.close()
    return folder


def report(number: int, epoch: float = 1.0, **metrics: float) -> Report:
    """Return a validation report whose step equals its number."""
    values = metrics or {"loss": 1 / number}
    return Report(number=number, at=1.0, kind="validation", step=number, epoch=epoch, metrics=values)


def token_of(served: Served, key: AttemptId) -> str:
    """Return the token that the service issued for an attempt, once its gang was started."""
    until(lambda: key in served.engine.tokens, f"attempt {key} starts")
    return served.engine.tokens[key]
