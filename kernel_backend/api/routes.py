"""The table of all routes: what the application serves, the OpenAPI document says, and the tests walk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from tornado.web import Application, RequestHandler

from kernel_backend.api import (
    admin,
    artifacts,
    attempts,
    checkpoints,
    experiments,
    openapi,
    searches,
    sharing,
    snapshots,
    stream,
)
from kernel_backend.api.base import UnknownRoute, Use
from kernel_backend.api.route import Operation, Route
from kernel_backend.identity.base import Browsers, Identity
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.checkpoints import Collected, Collection
from kernel_backend.model.curves import Curves
from kernel_backend.model.diff import Diff, HistoryEntry, Rerun
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.overview import CheckpointInfo, LogChunk, NodeUse, Overview
from kernel_backend.model.reports import Delivery, Instruction, StoredReport
from kernel_backend.model.resumption import Resumption
from kernel_backend.model.sharing import Account, Deed, Pool, Priority, Self, UseOverTime, Waiting
from kernel_backend.model.standing import Extension, Importance, SearchCurves, Standing
from kernel_backend.model.stream import Message
from kernel_backend.service.service import Service

PING_S = 20  # a watcher that answers no ping for as long is gone
INT, TEXT = "integer", "string"
JSON, BYTES = "application/json", "application/octet-stream"
PNG, ZIP = "image/png", "application/zip"
LISTED = {"state": TEXT, "search": TEXT, "limit": INT, "owner": TEXT, "group": TEXT}
REPORTED = {"trial": INT, "kind": TEXT, "after": INT, "limit": INT}
LOGGED = {"trial": INT, "attempt": INT, "rank": INT, "offset": INT, "tail": INT}
PAST = {"search": TEXT, "limit": INT}
DRAWN = {"trial": INT, "points": INT}
MANY = {"limit": INT, "points": INT}
PAGED = {"sort": TEXT, "limit": INT, "offset": INT}
SPAN = {"since": INT, "until": INT, "points": INT}
WATCHED = {"after": INT, "experiment": INT}
SHOW = {"GET": Operation(Overview)}
ACT = {"POST": Operation(Overview)}
CHECKPOINT = {"POST": Operation(CheckpointInfo)}
ONE = "/api/experiments/{number}"
ACCOUNT = "/api/accounts/{kind}/{name}"
KEPT = f"{ONE}/checkpoints/{{trial}}/{{checkpoint}}"

ROUTES: tuple[Route, ...] = (
    Route(
        "/api/experiments",
        experiments.Experiments,
        {
            "GET": Operation({"experiments": Overview}, query=LISTED),
            "POST": Operation(Overview, body=Submission, status=201, also=(200,)),
        },
    ),
    Route(ONE, experiments.Experiment, SHOW),
    Route(f"{ONE}/stop", experiments.Stop, ACT),
    Route(f"{ONE}/pause", experiments.Pause, ACT),
    Route(f"{ONE}/resume", experiments.Resume, {"POST": Operation(Overview, body=Resumption, optional=True)}),
    Route(f"{ONE}/rerun", experiments.Rerun, {"POST": Operation(Overview, body=Rerun, optional=True, status=201)}),
    Route(f"{ONE}/verify", experiments.Verify, {"POST": Operation(Overview, body=Rerun, optional=True, status=201)}),
    Route(f"{ONE}/diff", experiments.Diff, {"GET": Operation(Diff, query={"other": INT})}),
    Route("/api/history", experiments.History, {"GET": Operation({"history": HistoryEntry}, query=PAST)}),
    Route(f"{ONE}/reports", experiments.Reports, {"GET": Operation({"reports": StoredReport}, query=REPORTED)}),
    Route(f"{ONE}/facts", experiments.Facts, {"GET": Operation({"facts": StoredFact}, query={"trial": INT})}),
    Route(f"{ONE}/curves", experiments.Curves, {"GET": Operation(Curves, query=DRAWN)}),
    Route(f"{ONE}/search", searches.Search, {"GET": Operation(Standing, query=PAGED)}),
    Route(f"{ONE}/search/curves", searches.Curves, {"GET": Operation(SearchCurves, query=MANY)}),
    Route(f"{ONE}/search/importance", searches.Importance, {"GET": Operation(Importance)}),
    Route(f"{ONE}/extend", searches.Extend, {"POST": Operation(Overview, body=Extension)}),
    Route(f"{ONE}/trials/{{trial}}/promote", searches.Promote, ACT),
    Route(f"{ONE}/trials/{{trial}}/prune", searches.Prune, ACT),
    Route(f"{ONE}/logs", experiments.Logs, {"GET": Operation(LogChunk, query=LOGGED)}),
    Route(f"{ONE}/checkpoints", checkpoints.Checkpoints, {"GET": Operation({"checkpoints": CheckpointInfo})}),
    Route(KEPT, checkpoints.Checkpoint, {"GET": Operation(JSON), "DELETE": Operation(status=204)}),
    Route(f"{KEPT}/verify", checkpoints.Verify, CHECKPOINT),
    Route(f"{KEPT}/pin", checkpoints.Pin, CHECKPOINT),
    Route(f"{KEPT}/unpin", checkpoints.Unpin, CHECKPOINT),
    Route(f"{KEPT}/parts/{{part}}", checkpoints.Part, {"GET": Operation(BYTES, query={"offset": INT})}),
    Route(f"{ONE}/artifacts", artifacts.Artifacts, {"GET": Operation({"artifacts": Artifact})}),
    Route(f"{ONE}/trials/{{trial}}/artifacts/{{artifact}}", artifacts.Artifact, {"GET": Operation(BYTES)}),
    Route(f"{ONE}/source", experiments.Source, {"GET": Operation(JSON)}),
    Route(f"{ONE}/environment", experiments.Environment, {"GET": Operation(EnvironmentInfo)}),
    Route(f"{ONE}/snapshot.zip", experiments.Archive, {"GET": Operation(ZIP)}),
    Route(f"{ONE}/picture.png", experiments.Picture, {"GET": Operation(PNG, query={"dark": INT})}),
    Route(
        "/api/snapshots/{id}",
        snapshots.Snapshots,
        {"HEAD": Operation(status=204), "PUT": Operation(body=BYTES, status=204)},
    ),
    Route("/api/attempts/{key}/records", attempts.Records, {"POST": Operation(Instruction, body=Delivery)}),
    Route("/api/stream", stream.Stream, {"GET": Operation(Message, query=WATCHED, status=101)}),
    Route("/api/gc", checkpoints.Collect, {"POST": Operation(Collected, body=Collection)}),
    Route("/api/me", sharing.Me, {"GET": Operation(Self)}),
    Route("/api/accounts", sharing.Accounts, {"GET": Operation({"accounts": Account})}),
    Route(
        f"{ACCOUNT}/quota",
        sharing.AccountQuota,
        {"PUT": Operation(Account, body=JSON), "DELETE": Operation(Account)},
    ),
    Route(f"{ACCOUNT}/use", sharing.AccountUse, {"GET": Operation(UseOverTime, query=SPAN)}),
    Route("/api/queue", sharing.Queue, {"GET": Operation({"queue": Waiting}, query={"limit": INT})}),
    Route("/api/queue/{number}/priority", sharing.QueuePriority, {"POST": Operation(Overview, body=Priority)}),
    Route("/api/queue/{number}/first", sharing.QueueFirst, ACT),
    Route("/api/nodes", sharing.Nodes, {"GET": Operation({"nodes": NodeUse})}),
    Route("/api/nodes/{name}/drain", sharing.Drain, {"POST": Operation(NodeUse)}),
    Route("/api/nodes/{name}/undrain", sharing.Undrain, {"POST": Operation(NodeUse)}),
    Route("/api/pools", sharing.Pools, {"GET": Operation({"pools": Pool})}),
    Route(
        "/api/audit",
        sharing.Audit,
        {"GET": Operation({"audit": Deed}, query={"before": INT, "limit": INT, "search": TEXT})},
    ),
    Route("/api/health", admin.Health, {"GET": Operation(JSON)}),
    Route("/api/openapi.json", openapi.OpenApi, {"GET": Operation(JSON)}),
)


def application(
    service: Service,
    identity: Identity,
    use: Use | None = None,
    *,
    prefix: str = "",
    browsers: Browsers | None = None,
    secret: str | None = None,
    pages: Iterable[tuple[str, type[RequestHandler]]] = (),
) -> Application:
    """The tornado application over a service; `use` is told of every request.

    Where people come by browser, `browsers` knows them, and cookies are signed with `secret`. Pages (a pattern and its
    handler) are below the prefix, as all routes are.
    """
    below = re.escape(prefix)
    return Application(
        [(below + pattern, handler) for pattern, handler in (*((r.pattern, r.handler) for r in ROUTES), *pages)],
        default_handler_class=UnknownRoute,
        service=service,
        identity=identity,
        browsers=browsers,
        cookie_secret=secret,
        use=use or Use(),
        routes=ROUTES,
        drawing=asyncio.Semaphore(1),  # pictures are work: many views at once must not starve the rest
        websocket_ping_interval=PING_S,
        websocket_max_message_size=2**16,
        log_function=lambda handler: None,
    )
