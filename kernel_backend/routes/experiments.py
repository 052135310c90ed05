"""List the routes of experiments, their searches, checkpoints, artifacts and snapshots."""

from __future__ import annotations

from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.checkpoints import GarbageReport, GarbageRequest
from kernel_backend.model.cluster.pools import Move
from kernel_backend.model.diff import Diff, HistoryEntry, Rerun
from kernel_backend.model.disk import DiskUsage
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.launch.trace import TraceRequest
from kernel_backend.model.launch.utilisation import Utilisation
from kernel_backend.model.register.records import Model, ModelEdit, Registered, Registration
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.search.methods import SearchMethods
from kernel_backend.model.stream import Message
from kernel_backend.model.times import Times
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.experiment_row import ExperimentTable
from kernel_backend.model.views.overview import CheckpointInfo, LogChunk, Overview
from kernel_backend.model.views.search_status import Extension, Importance, SearchCurves, SearchStatus
from kernel_backend.model.webhooks.records import EndedExperiments
from kernel_backend.routes.operations import (
    BYTES,
    CSV,
    INT,
    JSON,
    ONE,
    PNG,
    TAR,
    TEXT,
    ZIP,
    Endpoint,
    Operation,
    Query,
    reads,
    verb,
    whole,
)
from kernel_backend.spec.resume import Resumption

LISTED = {"state": TEXT, "search": TEXT, "tag": TEXT, "limit": INT, "owner": TEXT, "group": TEXT}
PAGED = {"after": INT, "before": INT, "limit": INT}
REPORTED = {"trial": INT, "kind": TEXT, "after": INT, "limit": INT}
LOGGED = {"trial": INT, "attempt": INT, "rank": INT, "offset": INT, "tail": INT}
DRAWN = {"trial": INT, "points": INT}
WATCHED = {"after": INT, "experiment": INT}
AGAIN = {"body": Rerun, "optional": True, "status": 201, "by_id": True, "again": False}
POINTS = 400  # points per curve, as many as a screen resolves
KEPT = f"{ONE}/checkpoints/{{trial}}/{{checkpoint}}"

EXPERIMENTS: tuple[Endpoint, ...] = (
    Endpoint(
        "/api/experiments",
        {
            "GET": Operation({"experiments": Overview}, query=LISTED, page=True),
            "POST": Operation(Overview, body=Submission, status=201, also=(200,), by_id=True),
        },
    ),
    Endpoint("/api/experiments/table", {"GET": Operation(ExperimentTable, query=PAGED, page=True)}),
    reads(
        "/api/experiments/ended",
        "ended",
        "List the user's experiments that ended after `since` (seconds since the epoch), at most twenty.",
        EndedExperiments,
        query={"since": whole(0)},
        page=True,
    ),
    reads(
        ONE,
        "overview",
        "Show an experiment: its record, trials, newest attempts, and why it waits.",
        Overview,
        page=True,
    ),
    Endpoint(f"{ONE}/label", verb("label", "Change its name, note or tags, at any time.", body=LabelEdit, page=True)),
    Endpoint(f"{ONE}/stop", verb("stop", "Stop an experiment for good.", page=True)),
    Endpoint(f"{ONE}/pause", verb("pause", "Pause it: it commits a checkpoint and releases its slots.", page=True)),
    Endpoint(
        f"{ONE}/move",
        verb("moves.move", "Move it to another pool; what runs goes on there from a checkpoint.", body=Move, page=True),
    ),
    reads(
        f"{ONE}/usage",
        "deletion.usage",
        "Return the disk usage of an experiment, and how many of these bytes would stay on disk if it were deleted.",
        DiskUsage,
        page=True,
    ),
    Endpoint(
        f"{ONE}/delete", verb("deletion.delete", "Delete one that has ended; its disk is freed after a day.", page=True)
    ),
    Endpoint(f"{ONE}/undelete", verb("deletion.undelete", "Restore a deleted one, within a day.", page=True)),
    Endpoint(
        f"{ONE}/resume",
        verb(
            "resume",
            "Resume a paused experiment, with another number of slots if the body names one.",
            body=Resumption,
            optional=True,
            page=True,
        ),
    ),
    Endpoint(
        f"{ONE}/rerun",
        verb("reruns.rerun", "Train an experiment's snapshot again, with the changes in the body.", page=True, **AGAIN),
    ),
    Endpoint(
        f"{ONE}/verify",
        verb(
            "reruns.verify",
            "Train the steps between an experiment's first two checkpoints again, as a new experiment.",
            **AGAIN,
        ),
    ),
    Endpoint(f"{ONE}/diff", {"GET": Operation(Diff, query={"other": INT, "before": INT}, page=True)}),
    reads(
        "/api/history",
        "compare.history",
        "List experiments, newest first, each with its changes since the previous one.",
        {"history": HistoryEntry},
        query={"search": TEXT, "limit": whole(20, 1, 200)},
    ),
    Endpoint(f"{ONE}/reports", {"GET": Operation({"reports": StoredReport}, query=REPORTED, page=True)}),
    Endpoint(f"{ONE}/export.csv", {"GET": Operation(CSV, query={"trial": INT}, page=True)}),
    reads(
        f"{ONE}/facts",
        "facts",
        "List the provenance records (facts) of a trial of experiment `number`.",
        {"facts": StoredFact},
        query={"trial": whole(1, 1)},
    ),
    reads(
        f"{ONE}/curves",
        "curves",
        "Read a trial's curves, of at most the given number of points each.",
        Curves,
        query={"trial": whole(1, 1), "points": whole(POINTS, 10, 2000)},
        page=True,
    ),
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
    reads(
        f"{ONE}/search",
        "search.status",
        "Show the status of a search: its rungs (lengths of training), best value over time, and a page of trials.",
        SearchStatus,
        query={"sort": Query("string", "best"), "limit": whole(100, 0, 1000), "offset": whole(0)},
        page=True,
    ),
    reads(
        f"{ONE}/search/curves",
        "search.curves",
        "Read the learning curves of a search's trials, best first: the metric after each unit, such as an epoch.",
        SearchCurves,
        query={"limit": whole(100, 1, 10_000), "points": whole(60, 2, 100_000)},
        page=True,
    ),
    reads(
        f"{ONE}/search/importance",
        "search.importance",
        "Return each hyperparameter's share of the difference between good and poor trials.",
        Importance,
        page=True,
    ),
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
    reads(
        f"{ONE}/checkpoints",
        "checkpoints.listed",
        "List the committed checkpoints of an experiment, and why each is retained.",
        {"checkpoints": CheckpointInfo},
        page=True,
    ),
    Endpoint(KEPT, {"GET": Operation(JSON), "DELETE": Operation(status=204)}),
    Endpoint(
        f"{KEPT}/verify",
        verb(
            "checkpoints.verify",
            "Read every byte of a checkpoint, and return whether any is damaged.",
            answer=CheckpointInfo,
        ),
    ),
    Endpoint(
        f"{KEPT}/pin",
        verb(
            "checkpoints.pin",
            "Pin a checkpoint, so that the retention rules do not delete it.",
            answer=CheckpointInfo,
            fixed={"pinned": True},
        ),
    ),
    Endpoint(
        f"{KEPT}/unpin",
        verb(
            "checkpoints.pin",
            "Unpin a checkpoint, so that the retention rules may delete it.",
            answer=CheckpointInfo,
            fixed={"pinned": False},
        ),
    ),
    Endpoint(
        f"{KEPT}/register",
        verb(
            "models.register",
            "Make a checkpoint the next version of a model; one that is a version already is returned as it is.",
            answer=Registered,
            body=Registration,
            page=True,
        ),
    ),
    reads(
        "/api/models",
        "models.models",
        "List the registered models that the user may see, with versions, aliases and logs.",
        {"models": Model},
        page=True,
    ),
    Endpoint(
        "/api/models/{name}",
        {
            "GET": Operation(Model, verb="models.model", does="Show a model: versions, aliases and their log."),
            "POST": Operation(
                Model,
                body=ModelEdit,
                again=True,
                page=True,
                verb="models.change",
                does="Set, unset or protect an alias, or remove a version that no alias names.",
            ),
        },
    ),
    Endpoint(f"{KEPT}/files.tar", {"GET": Operation(TAR, page=True)}),
    Endpoint(f"{KEPT}/parts/{{part}}", {"GET": Operation(BYTES, query={"offset": INT})}),
    reads(
        f"{ONE}/artifacts",
        "artifacts.listed",
        "List the artifacts that the trials of an experiment have saved.",
        {"artifacts": Artifact},
        page=True,
    ),
    Endpoint(f"{ONE}/trials/{{trial}}/artifacts/{{artifact}}", {"GET": Operation(BYTES, page=True)}),
    Endpoint(f"{ONE}/source", {"GET": Operation(JSON, page=True)}),
    reads(
        f"{ONE}/environment",
        "environment",
        "Read the recorded environment, its lock file, and the packages that could not be locked.",
        EnvironmentInfo,
    ),
    Endpoint(f"{ONE}/snapshot.zip", {"GET": Operation(ZIP)}),
    Endpoint(f"{ONE}/picture.png", {"GET": Operation(PNG, query={"dark": INT}, page=True)}),
    Endpoint("/api/snapshots/{id}", {"HEAD": Operation(status=204), "PUT": Operation(body=BYTES, status=204)}),
    Endpoint("/api/stream", {"GET": Operation(Message, query=WATCHED, status=101)}),
    Endpoint(
        "/api/gc",
        verb(
            "checkpoints.collect",
            "Delete the checkpoints of one experiment, or of all, that the retention rules no longer retain.",
            answer=GarbageReport,
            body=GarbageRequest,
        ),
    ),
)
