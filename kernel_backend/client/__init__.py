"""Call the service from Python: one method per operation, with records as results, DaylightErrors as exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from kernel_backend import discovery
from kernel_backend.client.attempts import AttemptCalls
from kernel_backend.client.calls import READING_S, UPLOAD_S, given
from kernel_backend.client.cluster import ClusterCalls
from kernel_backend.client.conversation import ANSWER_S, Conversation, Locate, json_object
from kernel_backend.client.measured import MeasuredCalls
from kernel_backend.client.notices import NoticeCalls
from kernel_backend.client.register import RegisterCalls
from kernel_backend.discovery import Address
from kernel_backend.errors import InvalidRequest, NotFound, ServiceUnreachable
from kernel_backend.model.artifacts import Artifact, check_name
from kernel_backend.model.checkpoints import GarbageReport, GarbageRequest
from kernel_backend.model.cluster.pools import Move
from kernel_backend.model.diff import Diff, HistoryEntry, Rerun
from kernel_backend.model.disk import DiskUsage
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.launch.trace import TraceRequest
from kernel_backend.model.record import Record, checked
from kernel_backend.model.reports import Kind, StoredReport
from kernel_backend.model.search.methods import SearchMethods
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.stream import Message
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import CheckpointInfo, LogChunk, Overview
from kernel_backend.model.views.search_status import Extension, Importance, SearchCurves, SearchStatus, TrialRow
from kernel_backend.reconnect import Say, to_stderr
from kernel_backend.routes.operations import Operation
from kernel_backend.spec.resume import Resumption

PAGE = 10_000  # reports per request
ROWS = 1000  # experiments, or trials of a search, per request


class Client(ClusterCalls, NoticeCalls, AttemptCalls, MeasuredCalls, RegisterCalls):
    """Client of one service; every method raises the DaylightError that the service returned.

    The service's address is looked up before each call, so that a service which restarts on another port is found.
    Calls that are safe to repeat are retried for `patience` seconds before ServiceUnreachable is raised.
    """

    def __init__(self, locate: Locate, *, patience: float = ANSWER_S, say: Say = to_stderr) -> None:
        super().__init__(Conversation(locate, patience, say))

    @classmethod
    def connect(cls, start: bool = True, home: Path | None = None) -> Self:
        """Return a client of this user's service, started if needed; without `start`, raise ServiceUnreachable."""
        locate: Locate = (lambda: discovery.start(home, say=to_stderr)) if start else (lambda: _running(home))
        locate()
        return cls(locate)

    @classmethod
    def at_home(cls, home: Path) -> Self:
        """Return a client of the service whose home directory is `home`.

        It never starts the service and never retries a request.
        """
        return cls(lambda: _running(home), patience=0.0)

    @classmethod
    def at(cls, url: str, token: str, patience: float = ANSWER_S, user: int | None = None) -> Self:
        """Return a client of the service at `url`.

        If the service is on this machine, its process must run as `user`, as this process's user, or as root.
        """
        return cls(lambda: Address(url, token, user=user), patience=patience)

    def health(self) -> dict[str, Any]:
        """Return a dict with the version, the process id and the home directory of the service."""
        return self._service.json("GET", "/api/health")

    def page(self, experiment: int) -> str:
        """Return the URL of an experiment's page in browsers; "" if the service does not know its own address there."""
        pages = str(self.health().get("pages", ""))
        return f"{pages}/experiments/{experiment}" if pages.startswith("http") else ""

    def request(
        self, operation: Operation, method: str, path: str, body: Record | None = None, query: Mapping[str, Any] = {}
    ) -> dict[str, Any]:
        """Return the JSON answer of an operation of the API (one that `routes` declares).

        `path` contains the operation's values, such as `/api/experiments/12`. Fields of the answer that this version
        does not know, as a newer service may send, are left out.
        """
        limit = READING_S if method == "GET" else ANSWER_S
        found = self._service.json(method, path, record=body, params=query, timeout=limit)
        if isinstance(operation.answer, type):
            return self._read(operation.answer, found).to_json()
        if isinstance(operation.answer, Mapping):
            return {
                name: [each.to_json() for each in self._list(kind, found, name)]
                for name, kind in operation.answer.items()
            }
        return found

    def act(self, number: int, verb: str, body: Record | None = None) -> Overview:
        """Call an operation (`verb`) on an experiment, such as `stop`, and return the experiment's overview.

        Raises NotFound, Forbidden, Conflict.
        """
        return self._overview("POST", f"/api/experiments/{number}/{verb}", record=body)

    def submit(self, submission: Submission) -> Overview:
        """Submit an experiment; return it, or an identical active one. The snapshot must have been uploaded before."""
        return self.submit_once(submission)[0]

    def submit_once(self, submission: Submission) -> tuple[Overview, bool]:
        """Submit an experiment like `submit`; return (overview, whether the experiment is new)."""
        answer = self._service.call("POST", "/api/experiments", record=submission)
        return self._read(Overview, json_object(answer)), answer.status_code == 201

    def experiments(
        self,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        owner: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
    ) -> list[Overview]:
        """Return at most `limit` experiments, newest first: the user's own, or the visible ones of an owner or a group.

        An empty `group` selects all that the user may see; `state`, `search` (a text) and `tags` select among them: an
        experiment must have all of these tags.
        """
        found: list[Overview] = []
        asked = given(state=state, search=search, owner=owner, group=group, tag=",".join(tags) or None)
        while len(found) < limit:
            page = min(ROWS, limit - len(found))
            asked |= {"limit": page} | ({"before": found[-1].experiment.number} if found else {})
            more = self._list(Overview, self._service.json("GET", "/api/experiments", params=asked), "experiments")
            found += more
            if len(more) < page:
                break
        return found

    def experiment(self, number: int) -> Overview:
        """Return the current state of one experiment; raises NotFound."""
        return self._overview("GET", f"/api/experiments/{number}")

    def label(self, number: int, edit: LabelEdit) -> Overview:
        """Change an experiment's name, note or tags; raises NotFound, Forbidden, and InvalidRequest for a bad tag."""
        return self.act(number, "label", edit)

    def usage_of(self, number: int) -> DiskUsage:
        """Return the disk usage of an experiment, and how much of it would stay if it were deleted; raises NotFound."""
        body = self._service.json("GET", f"/api/experiments/{number}/usage", timeout=READING_S)
        return self._read(DiskUsage, body)

    def delete_experiment(self, number: int) -> Overview:
        """Delete an experiment; for a day, `undelete` can restore it.

        Raises Conflict unless the experiment has ended.
        """
        return self.act(number, "delete")

    def undelete(self, number: int) -> Overview:
        """Restore a deleted experiment; raises Conflict if it was deleted more than a day ago."""
        return self.act(number, "undelete")

    def stop(self, number: int) -> Overview:
        """Stop the experiment for good."""
        return self.act(number, "stop")

    def pause(self, number: int) -> Overview:
        """Pause the experiment: commit a checkpoint and release the slots."""
        return self.act(number, "pause")

    def resume(self, number: int, slots: int | None = None, least_slots: int | None = None) -> Overview:
        """Resume a paused experiment, optionally with another number of slots.

        With `least_slots`, it may run on any number from `least_slots` to `slots`. If the number affects the result, a
        warning in the overview says how. Raises Conflict and ImpossibleAsk.
        """
        asked = checked(Resumption, slots=slots, least_slots=least_slots)
        return self.act(number, "resume", asked)

    def move(self, number: int, pool: str) -> Overview:
        """Move the experiment to another pool, or to the first of several (`gpu,cloud`) that can start it.

        Running gangs commit a checkpoint and continue there. Raises Conflict, ImpossibleAsk and InvalidRequest.
        """
        return self.act(number, "move", checked(Move, pool=pool))

    def rerun(self, number: int, asked: Rerun | None = None) -> Overview:
        """Queue a new experiment with the snapshot, seeds and threads of `number`, and the changes in `asked`."""
        return self.act(number, "rerun", asked or Rerun())

    def retrain(self, number: int, asked: Rerun | None = None) -> Overview:
        """Queue a new experiment that trains the steps between the first two checkpoints of `number` again.

        `diff` then compares the results of both, to verify that the training is reproducible. The record `Rerun` has
        changes, such as another number of slots.
        """
        return self.act(number, "verify", asked or Rerun())

    def diff(self, number: int, other: int) -> Diff:
        """Compare an experiment with another: the differences, the likeliest cause first, and the results."""
        body = self._service.json("GET", f"/api/experiments/{number}/diff", params={"other": other}, timeout=READING_S)
        return self._read(Diff, body)

    def history(self, search: str | None = None, limit: int = 20) -> list[HistoryEntry]:
        """Return experiments, newest first, each with its differences from the previous experiment."""
        body = self._service.json("GET", "/api/history", params=given(search=search, limit=limit), timeout=READING_S)
        return self._list(HistoryEntry, body, "history")

    def reports(
        self,
        number: int,
        trial: int = 1,
        kind: Kind | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[StoredReport]:
        """Return a trial's reports (metrics of one step each) with sequence numbers above `after`, in order.

        Without a limit, all of them are returned.
        """
        found: list[StoredReport] = []
        while limit is None or len(found) < limit:
            page = PAGE if limit is None else min(PAGE, limit - len(found))
            query = given(trial=trial, kind=kind, after=after, limit=page)
            body = self._service.json("GET", f"/api/experiments/{number}/reports", params=query)
            reports = self._list(StoredReport, body, "reports")
            found += reports
            if len(reports) < page:
                break
            after = found[-1].seq
        return found

    def export(self, number: int, trial: int | None = None) -> str:
        """Return a trial's reports as CSV; for a search without `trial`, its trials, one per row. Raises NotFound."""
        path = f"/api/experiments/{number}/export.csv"
        return self._service.call("GET", path, params=given(trial=trial), timeout=READING_S).text

    def facts(self, number: int, trial: int = 1) -> list[StoredFact]:
        """Return the provenance records (facts) of a trial's attempts, in the order reported; raises NotFound.

        Facts are what a result depends on besides the submission, such as digests of the data and the hardware.
        """
        body = self._service.json("GET", f"/api/experiments/{number}/facts", params={"trial": trial})
        return self._list(StoredFact, body, "facts")

    def trace(self, number: int, wanted: TraceRequest) -> Overview:
        """Request that ranks of a running training record a profile (trace) of some steps.

        Raises Conflict, Forbidden, NotFound.
        """
        return self.act(number, "trace", wanted)

    def curves(self, number: int, trial: int = 1, points: int = 400) -> Curves:
        """Return a trial's curves, downsampled to at most `points` (10 to 2000) points each; raises NotFound."""
        query = {"trial": trial, "points": points}
        return self._read(Curves, self._service.json("GET", f"/api/experiments/{number}/curves", params=query))

    def front(self, number: int) -> int:
        """Return the number of an experiment's main trial: of a search the best so far, else the only one."""
        front = self.experiment(number).front
        return front.index if front else 1

    def search(self, number: int, sort: str = "best", limit: int = 100, offset: int = 0) -> SearchStatus:
        """Return the status of a search, with at most `limit` (up to 1000) trials from `offset` on.

        Trials are sorted by the column `sort`; a leading `-` reverses the order. Raises NotFound, Conflict if it is
        no search, and InvalidRequest.
        """
        query = {"sort": sort, "limit": limit, "offset": offset}
        return self._read(SearchStatus, self._service.json("GET", f"/api/experiments/{number}/search", params=query))

    def search_methods(self) -> SearchMethods:
        """Return the service's search methods, and the problems of packages whose methods cannot be used."""
        return self._read(SearchMethods, self._service.json("GET", "/api/search/methods"))

    def trial_rows(self, number: int, sort: str = "best", limit: int | None = None) -> list[TrialRow]:
        """Return the trials of a search, at most `limit` or all of them, sorted as by `search`.

        Raises the same errors as `search`.
        """
        found: list[TrialRow] = []
        while limit is None or len(found) < limit:
            page = ROWS if limit is None else min(ROWS, limit - len(found))
            rows = self.search(number, sort, page, len(found)).trials
            found += rows
            if len(rows) < page:
                break
        return found

    def search_curves(self, number: int, limit: int = 100, points: int = 60) -> SearchCurves:
        """Return learning curves of at most `limit` trials, best first, with at most `points` points each.

        A curve has the metric by unit of training (epoch or step). Raises the same errors as `search`.
        """
        query = {"limit": limit, "points": points}
        return self._read(
            SearchCurves,
            self._service.json("GET", f"/api/experiments/{number}/search/curves", params=query, timeout=READING_S),
        )

    def importance(self, number: int) -> Importance:
        """Return how much each hyperparameter affects the metric in a search; raises the same errors as `search`."""
        body = self._service.json("GET", f"/api/experiments/{number}/search/importance", timeout=READING_S)
        return self._read(Importance, body)

    def promote(self, number: int, trial: int) -> Overview:
        """Train a trial of a search on to its next rung (length of training) with the next free slots.

        This happens however good the trial is. Raises NotFound, and Conflict if the trial has ended.
        """
        return self.act(number, f"trials/{trial}/promote")

    def prune(self, number: int, trial: int) -> Overview:
        """End a trial of a search early and for good; raises NotFound, and Conflict if the trial has ended."""
        return self.act(number, f"trials/{trial}/prune")

    def extend(self, number: int, asked: Extension) -> Overview:
        """Set new limits of a search: number of trials, slot time or duration; a completed search is continued.

        Raises Conflict, and InvalidRequest if no limit is given.
        """
        return self.act(number, "extend", asked)

    def logs(
        self,
        number: int,
        trial: int = 1,
        attempt: int | None = None,
        rank: int | None = None,
        offset: int | None = None,
        tail: int | None = None,
    ) -> LogChunk:
        """Return a chunk of a rank's log from `offset` on, or its last `tail` bytes.

        The tail has up to 1 MiB and starts at the beginning of a line. The rank defaults to the rank that failed
        first, else 0. Raises InvalidRequest for a rank that the experiment does not have.
        """
        if rank and not offset:
            _check_rank(rank, self.experiment(number))
        query = given(trial=trial, attempt=attempt, rank=rank, offset=offset, tail=tail)
        return self._read(LogChunk, self._service.json("GET", f"/api/experiments/{number}/logs", params=query))

    def checkpoints(self, number: int) -> list[CheckpointInfo]:
        """Return the committed checkpoints of all trials of an experiment, each with the reasons why it is retained."""
        body = self._service.json("GET", f"/api/experiments/{number}/checkpoints")
        return self._list(CheckpointInfo, body, "checkpoints")

    def artifacts(self, number: int) -> list[Artifact]:
        """Return the artifacts of all trials of an experiment, by trial and name; raises NotFound."""
        body = self._service.json("GET", f"/api/experiments/{number}/artifacts")
        return self._list(Artifact, body, "artifacts")

    def artifact(self, number: int, trial: int, name: str) -> bytes:
        """Return the bytes of an artifact; raises NotFound."""
        return self._service.call("GET", _artifact(number, trial, name), timeout=READING_S).content

    def artifact_pieces(self, number: int, trial: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact in pieces; a lost connection continues where it broke. Raises NotFound.

        The bytes are not verified: an artifact may be replaced meanwhile.
        """
        return self._service.pieces(_artifact(number, trial, name), timeout=READING_S)

    def verify(self, number: int, trial: int, checkpoint: str) -> CheckpointInfo:
        """Verify every byte of a checkpoint; return the checkpoint's record with the result."""
        path = f"{_kept(number, trial, checkpoint)}/verify"
        return self._read(CheckpointInfo, self._service.json("POST", path, timeout=READING_S))

    def pin(self, number: int, trial: int, checkpoint: str, pinned: bool = True) -> CheckpointInfo:
        """Pin a checkpoint, so that no rule deletes it, or unpin it."""
        path = f"{_kept(number, trial, checkpoint)}/{'pin' if pinned else 'unpin'}"
        return self._read(CheckpointInfo, self._service.json("POST", path))

    def delete(self, number: int, trial: int, checkpoint: str) -> None:
        """Delete a checkpoint for good; raises Conflict for one that is pinned or may still be needed."""
        self._service.call("DELETE", _kept(number, trial, checkpoint))

    def manifest(self, number: int, trial: int, checkpoint: str) -> bytes:
        """Return a checkpoint's manifest, which is JSON with the parts, their digests, and a digest of itself."""
        return self._service.call("GET", _kept(number, trial, checkpoint)).content

    def part(self, number: int, trial: int, checkpoint: str, name: str) -> Iterator[bytes]:
        """Yield the bytes of a checkpoint's part (file) `name` in pieces; a lost connection continues where it broke.

        The bytes are not verified: the caller must compare their digest with the one in the manifest.
        """
        return self._service.pieces(f"{_kept(number, trial, checkpoint)}/parts/{name}", timeout=READING_S)

    def archive(self, number: int) -> bytes:
        """Return the snapshot of an experiment: a zip with its definition, project files and description."""
        return self._service.call("GET", f"/api/experiments/{number}/snapshot.zip", timeout=UPLOAD_S).content

    def collect(self, number: int | None = None, dry_run: bool = False) -> GarbageReport:
        """Delete checkpoints that no retention rule selects, of one experiment or all.

        With `dry_run` only list them.
        """
        asked = GarbageRequest(experiment=number, dry_run=dry_run)
        answer = self._service.json("POST", "/api/gc", record=asked, timeout=READING_S)
        return self._read(GarbageReport, answer)

    def source(self, number: int) -> tuple[str, Snapshot]:
        """Return the submitted training definition's source, and the description of its snapshot."""
        body = self._service.json("GET", f"/api/experiments/{number}/source")
        return body["definition"], self._read(Snapshot, body["snapshot"])

    def environment(self, number: int) -> EnvironmentInfo:
        """Return an experiment's Python environment, its lock, and the packages that could not be locked."""
        return self._read(EnvironmentInfo, self._service.json("GET", f"/api/experiments/{number}/environment"))

    def picture(self, number: int, dark: bool = False) -> bytes:
        """Return a picture of the experiment's learning curves as a PNG, on a dark background if `dark`."""
        return self._service.call("GET", f"/api/experiments/{number}/picture.png", params={"dark": int(dark)}).content

    def upload_snapshot(self, id: str, data: bytes) -> None:
        """Store a snapshot's archive in the service, unless it has it already; `id` is the sha256 of `data`."""
        try:
            self._service.call("HEAD", f"/api/snapshots/{id}")
        except NotFound:
            self._service.call("PUT", f"/api/snapshots/{id}", content=data, timeout=UPLOAD_S)

    def watch(self, after: int = 0, experiment: int | None = None) -> Iterator[Message]:
        """Yield every message about experiments after number `after`, each once and in order, until the caller stops.

        With `experiment`, only messages about it are yielded. A lost connection is reopened after the last received
        message. The retry time `patience` starts again after each connection that lasted a while. Calling `close` from
        another thread ends the iteration, even before the first message.
        """
        return self._service.watch(after, experiment)

    def close(self) -> None:
        """Close the connections, which ends each `watch`; the next call opens new ones."""
        self._service.close()


def _running(home: Path | None) -> Address:
    address = discovery.find(home)
    if address is None:
        raise ServiceUnreachable("no Daylight service runs: start it with: daylight serve")
    return address


def _artifact(number: int, trial: int, name: str) -> str:
    return f"/api/experiments/{number}/trials/{trial}/artifacts/{quote(check_name(name))}"


def _kept(number: int, trial: int, checkpoint: str) -> str:
    return f"/api/experiments/{number}/checkpoints/{trial}/{checkpoint}"


def _check_rank(rank: int, overview: Overview) -> None:
    number, slots = overview.experiment.number, overview.experiment.config.slots
    if rank >= slots:
        there = "rank 0 alone" if slots == 1 else f"ranks 0 to {slots - 1}"
        raise InvalidRequest(f"--rank {rank}: experiment #{number} has {there}")
