"""List the service's routes, and which of them the Jupyter server forwards for Daylight's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.checkpoints import GarbageReport, GarbageRequest
from kernel_backend.model.cluster.accounting import SpendingReport
from kernel_backend.model.cluster.accounts import Account, AuditEntry, Priority, Self, UseOverTime, Waiting
from kernel_backend.model.cluster.pool_check import PoolCheck, PoolCheckRequest
from kernel_backend.model.cluster.pools import Move, PoolSettings, PoolStatus
from kernel_backend.model.diff import Diff, HistoryEntry, Rerun
from kernel_backend.model.disk import DiskReport, DiskUsage
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.launch.holder import HolderOrders, HolderReport
from kernel_backend.model.launch.nodes import JoinAnswer, NodeOffer, NodeOrder, NodeState
from kernel_backend.model.launch.probe import ProbeOrders, ProbeReport
from kernel_backend.model.launch.staging import DIGEST, FILE, StagedArtifact, StagedFile
from kernel_backend.model.launch.trace import TraceRequest
from kernel_backend.model.launch.utilisation import Utilisation
from kernel_backend.model.record import Record
from kernel_backend.model.reports import ArtifactSaved, Delivery, Instruction, StoredReport
from kernel_backend.model.search.methods import SearchMethods
from kernel_backend.model.stream import Message
from kernel_backend.model.times import Times
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import CheckpointInfo, LogChunk, NodeUse, Overview
from kernel_backend.model.views.search_status import Extension, Importance, SearchCurves, SearchStatus
from kernel_backend.model.webhooks.records import EndedExperiments, NewWebhook, Tried, Webhook
from kernel_backend.spec.resume import Resumption

# Placeholders in paths, and regular expressions of their values.
PARTS = {
    "number": r"[0-9]{1,9}",
    "trial": r"[0-9]{1,9}",
    "checkpoint": r"[0-9]{1,18}-[0-9]{1,9}",
    "artifact": r"(?:[A-Za-z0-9._-]|%20){1,300}",  # URL-encoded: a space is %20
    "part": r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "id": r"[0-9a-f]{64}",
    "kind": r"(?:user|group)",
    "name": r"[^/]{1,900}",  # name of a user, a group, a node or a pool, URL-encoded
    "key": r"[0-9]{1,9}\.[0-9]{1,9}-[0-9]{1,9}",
    "file": FILE,
    "digest": DIGEST,
    "check": r"[0-9a-f]{32}",
    "allocation": r"[0-9]{1,9}-[0-9a-f]{6}",
}


@dataclass(frozen=True)
class Operation:
    """HTTP method of a route, with its request and reply.

    `answer` describes the reply: the record that it contains, `{name: record}` for a list of records under this name,
    a media type such as `image/png`, or None for an empty reply.
    """

    answer: type[Record] | Mapping[str, type[Record]] | str | None = None
    body: type[Record] | str | None = None
    optional: bool = False  # the body may be omitted
    query: Mapping[str, str] = field(default_factory=dict)  # name -> JSON type
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses with the same reply
    page: bool = False  # pages may use it, too: Jupyter servers and kernels of widgets forward it
    again: bool = False  # idempotent POST, so that a client may repeat it after a lost reply
    by_id: bool = False  # POST that a client may repeat, if it gives it an id and the service knows such ids
    verb: str = ""  # method of the service, such as `stop` or `search.prune`; "": it has a handler of its own
    does: str = ""  # description of the verb in the OpenAPI document


@dataclass(frozen=True)
class Endpoint:
    """Path of the API, such as `/api/experiments/{number}`, with an operation per HTTP method."""

    path: str
    operations: Mapping[str, Operation]

    @property
    def pattern(self) -> str:
        """Return the path as a regular expression, with a group for each parameter in braces."""
        return re.sub(r"{(\w+)}", lambda part: f"({PARTS[part[1]]})", self.path.replace(".", r"\."))

    @property
    def parts(self) -> list[str]:
        """Return the names of the path's parameters in braces."""
        return re.findall(r"{(\w+)}", self.path)


def verb(name: str, does: str, **options: Any) -> Mapping[str, Operation]:
    """Return the operations, by HTTP method, of a route whose POST changes an experiment and returns its overview.

    `name` is the verb, such as `stop`, and `does` describes it.
    """
    return {"POST": Operation(Overview, verb=name, does=does, **{"again": True, **options})}


def is_repeatable(method: str, path: str) -> bool:
    """Return True if a client may repeat a request whose reply was lost.

    This holds for all requests except POSTs that are not idempotent.
    """
    return method != "POST" or any(operation.again for operation in _posts(path))


def takes_id(method: str, path: str) -> bool:
    """Return True if a client may repeat a request once it has given it an id (`versions.REQUEST`)."""
    return method == "POST" and any(operation.by_id for operation in _posts(path))


def _posts(path: str) -> Iterator[Operation]:
    posts = ((each.pattern, each.operations["POST"]) for each in ENDPOINTS if "POST" in each.operations)
    return (operation for pattern, operation in posts if re.fullmatch(pattern, path))


INT, TEXT = "integer", "string"
JSON, BYTES = "application/json", "application/octet-stream"
PNG, ZIP, CSV, PROMETHEUS = "image/png", "application/zip", "text/csv", "text/plain"
LISTED = {"state": TEXT, "search": TEXT, "tag": TEXT, "limit": INT, "owner": TEXT, "group": TEXT}
REPORTED = {"trial": INT, "kind": TEXT, "after": INT, "limit": INT}
LOGGED = {"trial": INT, "attempt": INT, "rank": INT, "offset": INT, "tail": INT}
PAST = {"search": TEXT, "limit": INT}
DRAWN = {"trial": INT, "points": INT}
MANY = {"limit": INT, "points": INT}
PAGED = {"sort": TEXT, "limit": INT, "offset": INT}
SPAN = {"since": INT, "until": INT, "points": INT}
SPENT = {"by": TEXT, "since": INT, "until": INT}
WATCHED = {"after": INT, "experiment": INT}
SHOW = {"GET": Operation(Overview, page=True)}
CHECKPOINT = {"POST": Operation(CheckpointInfo, again=True)}
ONE = "/api/experiments/{number}"
ATTEMPT = "/api/attempts/{key}"
PROBE = "/api/pool-checks/{check}"
HOLDER = "/api/allocations/{allocation}"
ACCOUNT = "/api/accounts/{kind}/{name}"
KEPT = f"{ONE}/checkpoints/{{trial}}/{{checkpoint}}"

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "/api/experiments",
        {
            "GET": Operation({"experiments": Overview}, query=LISTED, page=True),
            "POST": Operation(Overview, body=Submission, status=201, also=(200,), by_id=True),
        },
    ),
    Endpoint("/api/experiments/ended", {"GET": Operation(EndedExperiments, query={"since": INT}, page=True)}),
    Endpoint(ONE, SHOW),
    Endpoint(f"{ONE}/label", verb("label", "Change its name, note or tags, at any time.", body=LabelEdit, page=True)),
    Endpoint(f"{ONE}/stop", verb("stop", "Stop an experiment for good.", page=True)),
    Endpoint(f"{ONE}/pause", verb("pause", "Pause it: it commits a checkpoint and releases its slots.", page=True)),
    Endpoint(
        f"{ONE}/move",
        verb("moves.move", "Move it to another pool; what runs goes on there from a checkpoint.", body=Move, page=True),
    ),
    Endpoint(f"{ONE}/usage", {"GET": Operation(DiskUsage, page=True)}),
    Endpoint(
        f"{ONE}/delete", verb("deletion.delete", "Delete one that has ended; its disk is freed after a day.", page=True)
    ),
    Endpoint(
        f"{ONE}/undelete",
        verb("deletion.undelete", "Restore a deleted one, within a day.", page=True),
    ),
    Endpoint(f"{ONE}/resume", {"POST": Operation(Overview, body=Resumption, optional=True, page=True, again=True)}),
    Endpoint(
        f"{ONE}/rerun", {"POST": Operation(Overview, body=Rerun, optional=True, status=201, page=True, by_id=True)}
    ),
    Endpoint(f"{ONE}/verify", {"POST": Operation(Overview, body=Rerun, optional=True, status=201, by_id=True)}),
    Endpoint(f"{ONE}/diff", {"GET": Operation(Diff, query={"other": INT}, page=True)}),
    Endpoint("/api/history", {"GET": Operation({"history": HistoryEntry}, query=PAST)}),
    Endpoint(f"{ONE}/reports", {"GET": Operation({"reports": StoredReport}, query=REPORTED, page=True)}),
    Endpoint(f"{ONE}/export.csv", {"GET": Operation(CSV, query={"trial": INT}, page=True)}),
    Endpoint(f"{ONE}/facts", {"GET": Operation({"facts": StoredFact}, query={"trial": INT})}),
    Endpoint(f"{ONE}/curves", {"GET": Operation(Curves, query=DRAWN, page=True)}),
    Endpoint(f"{ONE}/times", {"GET": Operation(Times, query={"trial": INT}, page=True)}),
    Endpoint(f"{ONE}/utilisation", {"GET": Operation(Utilisation, query=DRAWN, page=True)}),
    Endpoint(
        f"{ONE}/trace",
        verb(
            "traces.request",
            "Record some steps of a running training as a trace.",
            body=TraceRequest,
            again=False,
            page=True,
        ),
    ),
    Endpoint("/api/search/methods", {"GET": Operation(SearchMethods)}),
    Endpoint(f"{ONE}/search", {"GET": Operation(SearchStatus, query=PAGED, page=True)}),
    Endpoint(f"{ONE}/search/curves", {"GET": Operation(SearchCurves, query=MANY, page=True)}),
    Endpoint(f"{ONE}/search/importance", {"GET": Operation(Importance, page=True)}),
    Endpoint(
        f"{ONE}/extend",
        verb("search.extend", "Set the totals of a search; a completed one is reopened.", body=Extension, page=True),
    ),
    Endpoint(
        f"{ONE}/trials/{{trial}}/promote",
        verb("search.promote", "Promote a trial to its next rung, whatever its rank.", page=True),
    ),
    Endpoint(f"{ONE}/trials/{{trial}}/prune", verb("search.prune", "Prune a trial for good.", page=True, again=False)),
    Endpoint(f"{ONE}/logs", {"GET": Operation(LogChunk, query=LOGGED, page=True)}),
    Endpoint(f"{ONE}/checkpoints", {"GET": Operation({"checkpoints": CheckpointInfo}, page=True)}),
    Endpoint(KEPT, {"GET": Operation(JSON), "DELETE": Operation(status=204)}),
    Endpoint(f"{KEPT}/verify", CHECKPOINT),
    Endpoint(f"{KEPT}/pin", CHECKPOINT),
    Endpoint(f"{KEPT}/unpin", CHECKPOINT),
    Endpoint(f"{KEPT}/parts/{{part}}", {"GET": Operation(BYTES, query={"offset": INT})}),
    Endpoint(f"{ONE}/artifacts", {"GET": Operation({"artifacts": Artifact}, page=True)}),
    Endpoint(f"{ONE}/trials/{{trial}}/artifacts/{{artifact}}", {"GET": Operation(BYTES, page=True)}),
    Endpoint(f"{ONE}/source", {"GET": Operation(JSON, page=True)}),
    Endpoint(f"{ONE}/environment", {"GET": Operation(EnvironmentInfo)}),
    Endpoint(f"{ONE}/snapshot.zip", {"GET": Operation(ZIP)}),
    Endpoint(f"{ONE}/picture.png", {"GET": Operation(PNG, query={"dark": INT}, page=True)}),
    Endpoint(
        "/api/snapshots/{id}",
        {"HEAD": Operation(status=204), "PUT": Operation(body=BYTES, status=204)},
    ),
    Endpoint(f"{ATTEMPT}/records", {"POST": Operation(Instruction, body=Delivery, again=True)}),
    Endpoint(f"{ATTEMPT}/join", {"POST": Operation(JoinAnswer, body=NodeOffer, again=True)}),
    Endpoint(f"{ATTEMPT}/nodes", {"POST": Operation(NodeOrder, body=NodeState, again=True)}),
    Endpoint(f"{ATTEMPT}/job.json", {"GET": Operation(JSON)}),
    Endpoint(f"{ATTEMPT}/snapshot.zip", {"GET": Operation(ZIP)}),
    Endpoint(f"{ATTEMPT}/environment.json", {"GET": Operation(JSON, query={"everything": INT})}),
    Endpoint(f"{ATTEMPT}/wheels/{{id}}", {"GET": Operation(BYTES, query={"offset": INT})}),
    Endpoint(f"{ATTEMPT}/files/{{file}}", {"PUT": Operation(StagedFile, body=BYTES, query={"offset": INT})}),
    Endpoint(f"{ATTEMPT}/artifacts", {"POST": Operation(StagedArtifact, body=ArtifactSaved, again=True)}),
    Endpoint(f"{ATTEMPT}/artifacts/{{digest}}", {"PUT": Operation(StagedFile, body=BYTES, query={"offset": INT})}),
    Endpoint("/api/stream", {"GET": Operation(Message, query=WATCHED, status=101)}),
    Endpoint("/api/gc", {"POST": Operation(GarbageReport, body=GarbageRequest, again=True)}),
    Endpoint("/api/me", {"GET": Operation(Self, page=True)}),
    Endpoint("/api/accounts", {"GET": Operation({"accounts": Account}, page=True)}),
    Endpoint(
        f"{ACCOUNT}/quota",
        {"PUT": Operation(Account, body=JSON), "DELETE": Operation(Account)},
    ),
    Endpoint(f"{ACCOUNT}/use", {"GET": Operation(UseOverTime, query=SPAN)}),
    Endpoint("/api/queue", {"GET": Operation({"queue": Waiting}, query={"limit": INT}, page=True)}),
    Endpoint("/api/queue/{number}/priority", {"POST": Operation(Overview, body=Priority, again=True)}),
    Endpoint("/api/queue/{number}/first", {"POST": Operation(Overview, again=True)}),
    Endpoint("/api/usage", {"GET": Operation(SpendingReport, query=SPENT)}),
    Endpoint("/api/usage.csv", {"GET": Operation(CSV, query=SPENT)}),
    Endpoint("/api/disk", {"GET": Operation(DiskReport, query={"everyone": INT, "largest": INT})}),
    Endpoint("/api/nodes", {"GET": Operation({"nodes": NodeUse}, page=True)}),
    Endpoint("/api/nodes/{name}/drain", {"POST": Operation(NodeUse, again=True)}),
    Endpoint("/api/nodes/{name}/undrain", {"POST": Operation(NodeUse, again=True)}),
    Endpoint("/api/pools", {"GET": Operation({"pools": PoolStatus}, page=True)}),
    Endpoint(
        "/api/pools/{name}",
        {
            "PUT": Operation(
                PoolStatus, body=PoolSettings, verb="pools.put", does="Add a pool, or replace its settings. For admins."
            ),
            "DELETE": Operation(
                PoolStatus, verb="pools.remove", does="Remove a pool that no unfinished experiment uses. For admins."
            ),
        },
    ),
    Endpoint(
        "/api/pools/{name}/check",
        {
            "POST": Operation(
                PoolCheck,
                body=PoolCheckRequest,
                optional=True,
                verb="pools.check",
                does="Check a pool by a probe on two of its nodes; takes up to two minutes. For admins.",
            )
        },
    ),
    Endpoint(PROBE, {"POST": Operation(ProbeOrders, body=ProbeReport, again=True)}),
    Endpoint(HOLDER, {"POST": Operation(HolderOrders, body=HolderReport, again=True)}),
    Endpoint(
        "/api/webhooks",
        {
            "GET": Operation({"webhooks": Webhook}, query={"everyone": INT}),
            "POST": Operation(Webhook, body=NewWebhook, status=201, by_id=True),
        },
    ),
    Endpoint(
        "/api/webhooks/{number}",
        {"DELETE": Operation(Webhook, verb="webhooks.remove", does="Remove a webhook, and what waits for it.")},
    ),
    Endpoint(
        "/api/webhooks/{number}/test",
        {"POST": Operation(Tried, verb="webhooks.test", does="Send a test message to a webhook now.")},
    ),
    Endpoint(
        "/api/audit",
        {"GET": Operation({"audit": AuditEntry}, query={"before": INT, "limit": INT, "search": TEXT})},
    ),
    Endpoint("/api/health", {"GET": Operation(JSON, page=True)}),
    Endpoint("/metrics", {"GET": Operation(PROMETHEUS)}),
    Endpoint("/api/openapi.json", {"GET": Operation(JSON)}),
)
