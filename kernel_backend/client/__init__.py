"""The service for those who use it: verbs as methods, words as answers, DaylightErrors as errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from kernel_backend import discovery
from kernel_backend.client.conversation import ANSWER_S, Conversation, Locate
from kernel_backend.discovery import Address
from kernel_backend.errors import InvalidRequest, NotFound, ServiceUnreachable
from kernel_backend.model.artifacts import Artifact, check_name
from kernel_backend.model.checkpoints import GarbageReport, GarbageRequest
from kernel_backend.model.cluster import accounts as sharing
from kernel_backend.model.diff import Diff, HistoryEntry, Rerun
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.labels import LabelEdit
from kernel_backend.model.record import Record, checked
from kernel_backend.model.reports import Delivery, Instruction, Kind, StoredReport
from kernel_backend.model.search.methods import SearchMethods
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.stream import Message
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import CheckpointInfo, LogChunk, NodeUse, Overview
from kernel_backend.model.views.search_status import Extension, Importance, SearchCurves, SearchStatus, TrialRow
from kernel_backend.reconnect import Say, to_stderr
from kernel_backend.spec.resume import Resumption

UPLOAD_S = 300.0  # seconds for a snapshot to go over
READING_S = 3600.0  # and for checkpoints to be read, which may be large and far away
PAGE = 10_000  # reports a request
ROWS = 1000  # trials of a search in one answer


_Answer = TypeVar("_Answer", bound=Record)


class Client:
    """A conversation with one service; every method raises the DaylightError that the service answered.

    Where the service listens is asked anew before each call, so one that restarted on another port is found
    again. Calls that may safely be said twice are tried for `patience` seconds before ServiceUnreachable is
    raised.
    """

    def __init__(self, locate: Locate, *, patience: float = ANSWER_S, say: Say = to_stderr) -> None:
        self._service = Conversation(locate, patience, say)

    @classmethod
    def connect(cls, start: bool = True, home: Path | None = None) -> Self:
        """A client of this user's service, started if none runs; without `start` ServiceUnreachable then."""
        locate: Locate = (lambda: discovery.start(home)) if start else (lambda: _running(home))
        locate()
        return cls(locate)

    @classmethod
    def at_home(cls, home: Path) -> Self:
        """A client of that home's service, which may come and go; nothing is started, no call repeated."""
        return cls(lambda: _running(home), patience=0.0)

    @classmethod
    def at(cls, url: str, token: str, patience: float = ANSWER_S, user: int | None = None) -> Self:
        """A client of the service at this address, which on this machine is this Unix user's, our own or root's."""
        return cls(lambda: Address(url, token, user=user), patience=patience)

    def health(self) -> dict[str, Any]:
        """The service's version, process and home."""
        return self._service.json("GET", "/api/health")

    def submit(self, submission: Submission) -> Overview:
        """The new experiment, or the same one that goes on already; its snapshot must have been uploaded."""
        return self.submit_once(submission)[0]

    def submit_once(self, submission: Submission) -> tuple[Overview, bool]:
        """The same, and whether it is new."""
        answer = self._service.call("POST", "/api/experiments", record=submission)
        return self._read(Overview, answer.json()), answer.status_code == 201

    def experiments(
        self,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        owner: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
    ) -> list[Overview]:
        """The newest experiments first: one's own, or those of an owner or a group as far as one may see them.

        The empty group is all that one may see; with `tags` those that have all of these.
        """
        asked = _given(state=state, search=search, limit=limit, owner=owner, group=group, tag=",".join(tags) or None)
        body = self._service.json("GET", "/api/experiments", params=asked)
        return self._list(Overview, body, "experiments")

    def experiment(self, number: int) -> Overview:
        """One experiment as it is now; raises NotFound."""
        return self._overview("GET", f"/api/experiments/{number}")

    def label(self, number: int, edit: LabelEdit) -> Overview:
        """Change its name, note or tags; raises NotFound, Forbidden, and InvalidRequest for a tag that cannot be."""
        return self._overview("POST", f"/api/experiments/{number}/label", again=True, record=edit)

    def stop(self, number: int) -> Overview:
        """End it for good."""
        return self._overview("POST", f"/api/experiments/{number}/stop", again=True)

    def pause(self, number: int) -> Overview:
        """Commit a checkpoint and give the slots back."""
        return self._overview("POST", f"/api/experiments/{number}/pause", again=True)

    def resume(self, number: int, slots: int | None = None) -> Overview:
        """Queue a paused experiment again, with another number of slots from here on where it is given.

        What that means for the result is among the warnings then. Raises Conflict and ImpossibleAsk.
        """
        asked = checked(Resumption, slots=slots)
        return self._overview("POST", f"/api/experiments/{number}/resume", again=True, record=asked)

    def rerun(self, number: int, asked: Rerun | None = None) -> Overview:
        """Its snapshot again, with its seeds and threads and with what is asked to be other: a new experiment."""
        return self._overview("POST", f"/api/experiments/{number}/rerun", record=asked or Rerun())

    def retrain(self, number: int, asked: Rerun | None = None) -> Overview:
        """The steps from its first checkpoint to its next again: a new experiment, to `diff` with it."""
        return self._overview("POST", f"/api/experiments/{number}/verify", record=asked or Rerun())

    def diff(self, number: int, other: int) -> Diff:
        """What differs between an experiment and another, the likeliest cause first, and what came of it."""
        body = self._service.json("GET", f"/api/experiments/{number}/diff", params={"other": other}, timeout=READING_S)
        return self._read(Diff, body)

    def history(self, search: str | None = None, limit: int = 20) -> list[HistoryEntry]:
        """The newest experiments first, each with what has changed since the one before it."""
        body = self._service.json("GET", "/api/history", params=_given(search=search, limit=limit), timeout=READING_S)
        return self._list(HistoryEntry, body, "history")

    def reports(
        self,
        number: int,
        trial: int = 1,
        kind: Kind | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[StoredReport]:
        """The reports after sequence number `after` in their order, all of them without a limit."""
        found: list[StoredReport] = []
        while limit is None or len(found) < limit:
            page = PAGE if limit is None else min(PAGE, limit - len(found))
            query = _given(trial=trial, kind=kind, after=after, limit=page)
            body = self._service.json("GET", f"/api/experiments/{number}/reports", params=query)
            reports = self._list(StoredReport, body, "reports")
            found += reports
            if len(reports) < page:
                break
            after = found[-1].seq
        return found

    def facts(self, number: int, trial: int = 1) -> list[StoredFact]:
        """What a trial's attempts have found out about what its result depends on, in their order; raises NotFound."""
        body = self._service.json("GET", f"/api/experiments/{number}/facts", params={"trial": trial})
        return self._list(StoredFact, body, "facts")

    def curves(self, number: int, trial: int = 1, points: int = 400) -> Curves:
        """A trial's curves, thinned to at most `points` (10 to 2000) points each; raises NotFound."""
        query = {"trial": trial, "points": points}
        return self._read(Curves, self._service.json("GET", f"/api/experiments/{number}/curves", params=query))

    def front(self, number: int) -> int:
        """The trial that is meant where an experiment is named: of a search the best so far, else its only one."""
        front = self.experiment(number).front
        return front.index if front else 1

    def search(self, number: int, sort: str = "best", limit: int = 100, offset: int = 0) -> SearchStatus:
        """How a search stands, with at most `limit` (up to 1000) of its trials, sorted by a column from `offset` on.

        `-` before the column turns it round. Raises NotFound, Conflict where it is no search, and InvalidRequest.
        """
        query = {"sort": sort, "limit": limit, "offset": offset}
        return self._read(SearchStatus, self._service.json("GET", f"/api/experiments/{number}/search", params=query))

    def search_methods(self) -> SearchMethods:
        """Return the search methods that the service has, and what keeps packages from adding theirs."""
        return self._read(SearchMethods, self._service.json("GET", "/api/search/methods"))

    def trial_rows(self, number: int, sort: str = "best", limit: int | None = None) -> list[TrialRow]:
        """The trials of a search, all of them without a limit; raises as `search` does."""
        found: list[TrialRow] = []
        while limit is None or len(found) < limit:
            page = ROWS if limit is None else min(ROWS, limit - len(found))
            rows = self.search(number, sort, page, len(found)).trials
            found += rows
            if len(rows) < page:
                break
        return found

    def search_curves(self, number: int, limit: int = 100, points: int = 60) -> SearchCurves:
        """The metric of at most `limit` trials of a search over their units, best first; raises as `search` does."""
        query = {"limit": limit, "points": points}
        return self._read(
            SearchCurves,
            self._service.json("GET", f"/api/experiments/{number}/search/curves", params=query, timeout=READING_S),
        )

    def importance(self, number: int) -> Importance:
        """How much each hyperparameter makes of the difference between trials; raises as `search` does."""
        body = self._service.json("GET", f"/api/experiments/{number}/search/importance", timeout=READING_S)
        return self._read(Importance, body)

    def promote(self, number: int, trial: int) -> Overview:
        """Let a trial of a search go on next, whatever its rank; raises NotFound, and Conflict where it has ended."""
        return self._overview("POST", f"/api/experiments/{number}/trials/{trial}/promote", again=True)

    def prune(self, number: int, trial: int) -> Overview:
        """Give a trial of a search up for good; raises NotFound, and Conflict where it has ended."""
        return self._overview("POST", f"/api/experiments/{number}/trials/{trial}/prune")

    def extend(self, number: int, asked: Extension) -> Overview:
        """Let a search have more trials, slot time or time in all; raises Conflict, and InvalidRequest for nothing."""
        return self._overview("POST", f"/api/experiments/{number}/extend", again=True, record=asked)

    def logs(
        self,
        number: int,
        trial: int = 1,
        attempt: int | None = None,
        rank: int | None = None,
        offset: int | None = None,
        tail: int | None = None,
    ) -> LogChunk:
        """A piece of a rank's log from `offset` on, or its last `tail` bytes (up to 1 MiB) from a line's beginning on.

        Without a rank it is the one that failed first, else rank 0. Raises InvalidRequest for a rank that the
        experiment does not have.
        """
        if rank and not offset:
            _check_rank(rank, self.experiment(number))
        query = _given(trial=trial, attempt=attempt, rank=rank, offset=offset, tail=tail)
        return self._read(LogChunk, self._service.json("GET", f"/api/experiments/{number}/logs", params=query))

    def checkpoints(self, number: int) -> list[CheckpointInfo]:
        """The committed checkpoints of all trials, and why each is kept."""
        body = self._service.json("GET", f"/api/experiments/{number}/checkpoints")
        return self._list(CheckpointInfo, body, "checkpoints")

    def artifacts(self, number: int) -> list[Artifact]:
        """What all trials have kept with `run.artifact`, by trial and name; raises NotFound."""
        body = self._service.json("GET", f"/api/experiments/{number}/artifacts")
        return self._list(Artifact, body, "artifacts")

    def artifact(self, number: int, trial: int, name: str) -> bytes:
        """The bytes of an artifact; raises NotFound."""
        path = f"/api/experiments/{number}/trials/{trial}/artifacts/{quote(check_name(name))}"
        return self._service.call("GET", path, timeout=READING_S).content

    def verify(self, number: int, trial: int, checkpoint: str) -> CheckpointInfo:
        """Have every byte of a checkpoint read; the answer says what was found."""
        path = f"{_kept(number, trial, checkpoint)}/verify"
        return self._read(CheckpointInfo, self._service.json("POST", path, again=True, timeout=READING_S))

    def pin(self, number: int, trial: int, checkpoint: str, pinned: bool = True) -> CheckpointInfo:
        """Have a checkpoint kept whatever the rules say, or no longer."""
        path = f"{_kept(number, trial, checkpoint)}/{'pin' if pinned else 'unpin'}"
        return self._read(CheckpointInfo, self._service.json("POST", path, again=True))

    def delete(self, number: int, trial: int, checkpoint: str) -> None:
        """Delete a checkpoint for good; raises Conflict for one that is pinned or may still be needed."""
        self._service.call("DELETE", _kept(number, trial, checkpoint))

    def manifest(self, number: int, trial: int, checkpoint: str) -> bytes:
        """A checkpoint's manifest: the JSON that names its parts and their digests, with a digest of its own."""
        return self._service.call("GET", _kept(number, trial, checkpoint)).content

    def part(self, number: int, trial: int, checkpoint: str, name: str) -> Iterator[bytes]:
        """The bytes of a checkpoint's part, piece by piece; a connection that breaks goes on where it was.

        They are as they came: whoever takes them compares them with the manifest.
        """
        return self._service.pieces(f"{_kept(number, trial, checkpoint)}/parts/{name}", timeout=READING_S)

    def archive(self, number: int) -> bytes:
        """The snapshot of an experiment: a zip with its definition, project files and description."""
        return self._service.call("GET", f"/api/experiments/{number}/snapshot.zip", timeout=UPLOAD_S).content

    def collect(self, number: int | None = None, dry_run: bool = False) -> GarbageReport:
        """Delete what the rules let go, of one experiment or of all; a dry run only says what that would be."""
        asked = GarbageRequest(experiment=number, dry_run=dry_run)
        answer = self._service.json("POST", "/api/gc", again=True, record=asked, timeout=READING_S)
        return self._read(GarbageReport, answer)

    def source(self, number: int) -> tuple[str, Snapshot]:
        """The definition that was submitted, and what is known about where it came from."""
        body = self._service.json("GET", f"/api/experiments/{number}/source")
        return body["definition"], self._read(Snapshot, body["snapshot"])

    def environment(self, number: int) -> EnvironmentInfo:
        """What an experiment ran with, its lock, and what could not be locked."""
        return self._read(EnvironmentInfo, self._service.json("GET", f"/api/experiments/{number}/environment"))

    def picture(self, number: int, dark: bool = False) -> bytes:
        """The curves as a PNG."""
        return self._service.call("GET", f"/api/experiments/{number}/picture.png", params={"dark": int(dark)}).content

    def me(self) -> sharing.Self:
        """Who asks, with what is theirs and what they have of it."""
        return self._read(sharing.Self, self._service.json("GET", "/api/me"))

    def accounts(self) -> list[sharing.Account]:
        """Users and groups with their quotas and use: for admins all, for others their own."""
        return self._list(sharing.Account, self._service.json("GET", "/api/accounts"), "accounts")

    def set_quota(self, kind: sharing.AccountKind, name: str, given: Mapping[str, Any]) -> sharing.Account:
        """Set some numbers of a quota: fields of Quota, `none` for no limit, None for the hub's number again.

        Raises Forbidden for whoever is no admin, and InvalidRequest with the number that cannot be.
        """
        body = self._service.json("PUT", f"{_account(kind, name)}/quota", again=True, json=dict(given))
        return self._read(sharing.Account, body)

    def clear_quota(self, kind: sharing.AccountKind, name: str) -> sharing.Account:
        """Have all numbers of a quota be the hub's again; raises Forbidden for whoever is no admin."""
        return self._read(sharing.Account, self._service.json("DELETE", f"{_account(kind, name)}/quota", again=True))

    def usage(
        self,
        kind: sharing.AccountKind,
        name: str,
        since: float | None = None,
        until: float | None = None,
        points: int = 200,
    ) -> sharing.UseOverTime:
        """How many slots an account has held over time, of the last week by default; raises NotFound."""
        whole = {"since": since and int(since), "until": until and int(until), "points": points}
        return self._read(
            sharing.UseOverTime, self._service.json("GET", f"{_account(kind, name)}/use", params=_given(**whole))
        )

    def queue(self) -> list[sharing.Waiting]:
        """What waits, in the order of the turns, pool by pool."""
        return self._list(sharing.Waiting, self._service.json("GET", "/api/queue"), "queue")

    def set_priority(self, number: int, priority: int | None) -> Overview:
        """Give an experiment another priority, None: the one that its owner asked with.

        Raises NotFound, Forbidden, InvalidRequest, Conflict.
        """
        asked = checked(sharing.Priority, priority=priority)
        return self._overview("POST", f"/api/queue/{number}/priority", again=True, record=asked)

    def put_first(self, number: int) -> Overview:
        """Put an experiment ahead of everything that waits; raises NotFound, and Forbidden for whoever is no admin."""
        return self._overview("POST", f"/api/queue/{number}/first", again=True)

    def drain(self, name: str) -> NodeUse:
        """Start nothing more on a node; raises NotFound, and Forbidden for whoever is no admin."""
        return self._read(NodeUse, self._service.json("POST", f"/api/nodes/{_part(name)}/drain", again=True))

    def undrain(self, name: str) -> NodeUse:
        """Start gangs on a node again; raises as `drain` does."""
        return self._read(NodeUse, self._service.json("POST", f"/api/nodes/{_part(name)}/undrain", again=True))

    def pools(self) -> list[sharing.Pool]:
        """The pools: what they have, what of it is in use, and how many wait."""
        return self._list(sharing.Pool, self._service.json("GET", "/api/pools"), "pools")

    def audit(self, before: int | None = None, limit: int = 100, search: str = "") -> list[sharing.AuditEntry]:
        """What admins have done, newest first, before number `before`, that has all words of `search`.

        Raises Forbidden for whoever is no admin.
        """
        asked = _given(before=before, limit=limit, search=search or None)
        body = self._service.json("GET", "/api/audit", params=asked)
        return self._list(sharing.AuditEntry, body, "audit")

    def nodes(self) -> list[NodeUse]:
        """The nodes and how much of each is in use."""
        return self._list(NodeUse, self._service.json("GET", "/api/nodes"), "nodes")

    def upload_snapshot(self, id: str, data: bytes) -> None:
        """Store an archive, unless the service has it already; `id` is the sha256 of `data`."""
        try:
            self._service.call("HEAD", f"/api/snapshots/{id}")
        except NotFound:
            self._service.call("PUT", f"/api/snapshots/{id}", content=data, timeout=UPLOAD_S)

    def deliver(self, key: AttemptId | str, token: str, delivery: Delivery) -> Instruction:
        """Hand over a page of an attempt's records with the attempt's own token; the answer instructs its ranks."""
        body = delivery.model_dump_json(exclude=None if delivery.notes else {"notes"}).encode()
        path = f"/api/attempts/{key}/records"
        return self._read(Instruction, self._service.json("POST", path, token=token, again=True, content=body))

    def watch(self, after: int = 0, experiment: int | None = None) -> Iterator[Message]:
        """Everything that becomes known after message `after`, each once and in order, until the caller stops.

        A cut connection is made again and goes on after the last message that was seen. Patience begins anew
        with each connection that had lasted a while: silence is no reason to give up at its first cut. `close`,
        called from another thread, ends it, before the first message too.
        """
        return self._service.watch(after, experiment)

    def close(self) -> None:
        """Let go of the connections, which ends each `watch`; the next call makes new ones."""
        self._service.close()

    def _read(self, kind: type[_Answer], body: Mapping[str, Any]) -> _Answer:
        """Return what the service answered; raises OtherVersion where that is not understood here."""
        return self._service.read(kind, body)

    def _list(self, kind: type[_Answer], body: Mapping[str, Any], name: str) -> list[_Answer]:
        """Return the records that an answer lists under `name`; raises as `_read` does."""
        return [self._read(kind, each) for each in self._service.listed(body, name)]

    def _overview(self, method: str, path: str, **request: Any) -> Overview:
        return self._read(Overview, self._service.json(method, path, **request))


def _running(home: Path | None) -> Address:
    address = discovery.find(home)
    if address is None:
        raise ServiceUnreachable("no Daylight service runs: start it with: daylight serve")
    return address


def _account(kind: sharing.AccountKind, name: str) -> str:
    return f"/api/accounts/{kind}/{_part(name)}"


def _part(name: str) -> str:
    """A name as a part of an address, whatever it is: a dot alone would be taken for a way up."""
    return quote(name, safe="").replace(".", "%2E") if set(name) == {"."} else quote(name, safe="")


def _kept(number: int, trial: int, checkpoint: str) -> str:
    return f"/api/experiments/{number}/checkpoints/{trial}/{checkpoint}"


def _check_rank(rank: int, overview: Overview) -> None:
    number, slots = overview.experiment.number, overview.experiment.config.slots
    if rank >= slots:
        there = "rank 0 alone" if slots == 1 else f"ranks 0 to {slots - 1}"
        raise InvalidRequest(f"--rank {rank}: experiment #{number} has {there}")


def _given(**query: Any) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in query.items() if value is not None}
