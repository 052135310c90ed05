"""The only file that speaks HTTP to the service: verbs as methods, words as answers, DaylightErrors as errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from kernel_backend import discovery, errors
from kernel_backend.discovery import Address, CannotStart
from kernel_backend.errors import DaylightError, ServiceUnreachable
from kernel_backend.model import sharing
from kernel_backend.model.artifacts import Artifact, check_name
from kernel_backend.model.checkpoints import Collected, Collection
from kernel_backend.model.curves import Curves
from kernel_backend.model.diff import Diff, HistoryEntry, Rerun
from kernel_backend.model.environments import EnvironmentInfo
from kernel_backend.model.experiment import Submission
from kernel_backend.model.facts import StoredFact
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.overview import CheckpointInfo, LogChunk, NodeUse, Overview
from kernel_backend.model.reports import Delivery, Instruction, Kind, StoredReport
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.model.standing import Extension, Importance, SearchCurves, Standing, TrialRow
from kernel_backend.model.stream import Message
from kernel_backend.patience import SILENCE_S, Patience, Say, to_stderr

if TYPE_CHECKING:  # imported at the first call, to keep a kernel's start quick
    import httpx
    from websockets.sync.client import ClientConnection

ANSWER_S = 30.0  # seconds to wait for an answer
UPLOAD_S = 300.0  # and for a snapshot to go over
READING_S = 3600.0  # and for checkpoints to be read, which may be large and far away
PAGE = 10_000  # reports a request
ROWS = 1000  # trials of a search in one answer
BATCH = 1_000  # records a delivery: one that waited for an hour must not be too large
FRAME_LIMIT = 16 * 2**20  # bytes of one message

Locate = Callable[[], Address]


class Client:
    """A conversation with one service; every method raises the DaylightError that the service answered.

    Where the service listens is asked anew before each call, so one that restarted on another port is found
    again. Calls that may safely be said twice are tried for `patience` seconds before ServiceUnreachable is
    raised.
    """

    def __init__(self, locate: Locate, *, patience: float = ANSWER_S, say: Say = to_stderr) -> None:
        self._locate = locate
        self._patience = patience
        self._say = say
        self._open: httpx.Client | None = None
        self._streams: set[ClientConnection] = set()
        self._closed = 0  # how often: a `watch` of before ends

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
    def at(cls, url: str, token: str, patience: float = ANSWER_S) -> Self:
        """A client of the service at this address."""
        return cls(lambda: Address(url, token), patience=patience)

    @classmethod
    def of_user(cls, uid: int, url: str, token: str) -> Self:
        """A client of the service at this port of this machine while that Unix user has it; no call is repeated."""
        return cls(lambda: discovery.listening(url, token, uid), patience=0.0)

    def health(self) -> dict[str, Any]:
        """The service's version, process and home."""
        return self._json("GET", "/api/health")

    def submit(self, submission: Submission) -> Overview:
        """The new experiment, or the same one that goes on already; its snapshot must have been uploaded."""
        return self.submit_once(submission)[0]

    def submit_once(self, submission: Submission) -> tuple[Overview, bool]:
        """The same, and whether it is new."""
        answer = self._call("POST", "/api/experiments", json=submission.to_json())
        return Overview.from_json(answer.json()), answer.status_code == 201

    def experiments(
        self,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        owner: str | None = None,
        group: str | None = None,
    ) -> list[Overview]:
        """The newest experiments first: one's own, or those of an owner or a group as far as one may see them.

        The empty group is all that one may see.
        """
        asked = _given(state=state, search=search, limit=limit, owner=owner, group=group)
        body = self._json("GET", "/api/experiments", params=asked)
        return [Overview.from_json(each) for each in body["experiments"]]

    def experiment(self, number: int) -> Overview:
        """One experiment as it is now; raises NotFound."""
        return self._overview("GET", f"/api/experiments/{number}")

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
        asked = _given(slots=slots)
        return self._overview("POST", f"/api/experiments/{number}/resume", again=True, json=asked)

    def rerun(self, number: int, asked: Rerun | None = None) -> Overview:
        """Its snapshot again, with its seeds and threads and with what is asked to be other: a new experiment."""
        body = (asked or Rerun()).to_json()
        return self._overview("POST", f"/api/experiments/{number}/rerun", json=body)

    def retrain(self, number: int, asked: Rerun | None = None) -> Overview:
        """The steps from its first checkpoint to its next again: a new experiment, to `diff` with it."""
        return self._overview("POST", f"/api/experiments/{number}/verify", json=(asked or Rerun()).to_json())

    def diff(self, number: int, other: int) -> Diff:
        """What differs between an experiment and another, the likeliest cause first, and what came of it."""
        body = self._json("GET", f"/api/experiments/{number}/diff", params={"other": other}, timeout=READING_S)
        return Diff.model_validate(body)

    def history(self, search: str | None = None, limit: int = 20) -> list[HistoryEntry]:
        """The newest experiments first, each with what has changed since the one before it."""
        body = self._json("GET", "/api/history", params=_given(search=search, limit=limit), timeout=READING_S)
        return [HistoryEntry.model_validate(each) for each in body["history"]]

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
            body = self._json("GET", f"/api/experiments/{number}/reports", params=query)
            found += [StoredReport.model_validate(each) for each in body["reports"]]
            if len(body["reports"]) < page:
                break
            after = found[-1].seq
        return found

    def facts(self, number: int, trial: int = 1) -> list[StoredFact]:
        """What a trial's attempts have found out about what its result depends on, in their order; raises NotFound."""
        body = self._json("GET", f"/api/experiments/{number}/facts", params={"trial": trial})
        return [StoredFact.model_validate(each) for each in body["facts"]]

    def curves(self, number: int, trial: int = 1, points: int = 400) -> Curves:
        """A trial's curves, thinned to at most `points` (10 to 2000) points each; raises NotFound."""
        query = {"trial": trial, "points": points}
        return Curves.model_validate(self._json("GET", f"/api/experiments/{number}/curves", params=query))

    def front(self, number: int) -> int:
        """The trial that is meant where an experiment is named: of a search the best so far, else its only one."""
        front = self.experiment(number).front
        return front.index if front else 1

    def search(self, number: int, sort: str = "best", limit: int = 100, offset: int = 0) -> Standing:
        """How a search stands, with at most `limit` (up to 1000) of its trials, sorted by a column from `offset` on.

        `-` before the column turns it round. Raises NotFound, Conflict where it is no search, and InvalidRequest.
        """
        query = {"sort": sort, "limit": limit, "offset": offset}
        return Standing.model_validate(self._json("GET", f"/api/experiments/{number}/search", params=query))

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
        return SearchCurves.model_validate(
            self._json("GET", f"/api/experiments/{number}/search/curves", params=query, timeout=READING_S)
        )

    def importance(self, number: int) -> Importance:
        """How much each hyperparameter makes of the difference between trials; raises as `search` does."""
        body = self._json("GET", f"/api/experiments/{number}/search/importance", timeout=READING_S)
        return Importance.model_validate(body)

    def promote(self, number: int, trial: int) -> Overview:
        """Let a trial of a search go on next, whatever its rank; raises NotFound, and Conflict where it has ended."""
        return self._overview("POST", f"/api/experiments/{number}/trials/{trial}/promote", again=True)

    def prune(self, number: int, trial: int) -> Overview:
        """Give a trial of a search up for good; raises NotFound, and Conflict where it has ended."""
        return self._overview("POST", f"/api/experiments/{number}/trials/{trial}/prune")

    def extend(self, number: int, asked: Extension) -> Overview:
        """Let a search have more trials, slot time or time in all; raises Conflict, and InvalidRequest for nothing."""
        return self._overview("POST", f"/api/experiments/{number}/extend", again=True, json=asked.to_json())

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
        return LogChunk.model_validate(self._json("GET", f"/api/experiments/{number}/logs", params=query))

    def checkpoints(self, number: int) -> list[CheckpointInfo]:
        """The committed checkpoints of all trials, and why each is kept."""
        body = self._json("GET", f"/api/experiments/{number}/checkpoints")
        return [CheckpointInfo.model_validate(each) for each in body["checkpoints"]]

    def artifacts(self, number: int) -> list[Artifact]:
        """What all trials have kept with `run.artifact`, by trial and name; raises NotFound."""
        body = self._json("GET", f"/api/experiments/{number}/artifacts")
        return [Artifact.model_validate(each) for each in body["artifacts"]]

    def artifact(self, number: int, trial: int, name: str) -> bytes:
        """The bytes of an artifact; raises NotFound."""
        path = f"/api/experiments/{number}/trials/{trial}/artifacts/{quote(check_name(name))}"
        return self._call("GET", path, timeout=READING_S).content

    def verify(self, number: int, trial: int, checkpoint: str) -> CheckpointInfo:
        """Have every byte of a checkpoint read; the answer says what was found."""
        path = f"{_kept(number, trial, checkpoint)}/verify"
        return CheckpointInfo.model_validate(self._json("POST", path, again=True, timeout=READING_S))

    def pin(self, number: int, trial: int, checkpoint: str, pinned: bool = True) -> CheckpointInfo:
        """Have a checkpoint kept whatever the rules say, or no longer."""
        path = f"{_kept(number, trial, checkpoint)}/{'pin' if pinned else 'unpin'}"
        return CheckpointInfo.model_validate(self._json("POST", path, again=True))

    def delete(self, number: int, trial: int, checkpoint: str) -> None:
        """Delete a checkpoint for good; raises Conflict for one that is pinned or may still be needed."""
        self._call("DELETE", _kept(number, trial, checkpoint))

    def manifest(self, number: int, trial: int, checkpoint: str) -> bytes:
        """A checkpoint's manifest: the JSON that names its parts and their digests, with a digest of its own."""
        return self._call("GET", _kept(number, trial, checkpoint)).content

    def part(self, number: int, trial: int, checkpoint: str, name: str) -> Iterator[bytes]:
        """The bytes of a checkpoint's part, piece by piece; a connection that breaks goes on where it was.

        They are as they came: whoever takes them compares them with the manifest.
        """
        import httpx

        path = f"{_kept(number, trial, checkpoint)}/parts/{name}"
        trying, offset = Patience(self._patience, self._say), 0
        while True:
            try:
                with self._streamed(path, offset) as response:
                    for piece in response.iter_bytes():
                        trying = Patience(self._patience, self._say)
                        offset += len(piece)
                        yield piece
                    return
            except CannotStart:
                raise
            except (ServiceUnreachable, httpx.TransportError) as error:
                trying.wait(error)

    def archive(self, number: int) -> bytes:
        """The snapshot of an experiment: a zip with its definition, project files and description."""
        return self._call("GET", f"/api/experiments/{number}/snapshot.zip", timeout=UPLOAD_S).content

    def collect(self, number: int | None = None, dry_run: bool = False) -> Collected:
        """Delete what the rules let go, of one experiment or of all; a dry run only says what that would be."""
        asked = Collection(experiment=number, dry_run=dry_run)
        answer = self._json("POST", "/api/gc", again=True, json=asked.to_json(), timeout=READING_S)
        return Collected.model_validate(answer)

    def source(self, number: int) -> tuple[str, Snapshot]:
        """The definition that was submitted, and what is known about where it came from."""
        body = self._json("GET", f"/api/experiments/{number}/source")
        return body["definition"], Snapshot.model_validate(body["snapshot"])

    def environment(self, number: int) -> EnvironmentInfo:
        """What an experiment ran with, its lock, and what could not be locked."""
        return EnvironmentInfo.model_validate(self._json("GET", f"/api/experiments/{number}/environment"))

    def picture(self, number: int, dark: bool = False) -> bytes:
        """The curves as a PNG."""
        return self._call("GET", f"/api/experiments/{number}/picture.png", params={"dark": int(dark)}).content

    def me(self) -> sharing.Self:
        """Who asks, with what is theirs and what they have of it."""
        return sharing.Self.model_validate(self._json("GET", "/api/me"))

    def accounts(self) -> list[sharing.Account]:
        """Users and groups with their quotas and use: for admins all, for others their own."""
        return [sharing.Account.model_validate(each) for each in self._json("GET", "/api/accounts")["accounts"]]

    def set_quota(self, kind: sharing.AccountKind, name: str, given: Mapping[str, Any]) -> sharing.Account:
        """Set some numbers of a quota: fields of Quota, `none` for no limit, None for the hub's number again.

        Raises Forbidden for whoever is no admin, and InvalidRequest with the number that cannot be.
        """
        body = self._json("PUT", f"{_account(kind, name)}/quota", again=True, json=dict(given))
        return sharing.Account.model_validate(body)

    def clear_quota(self, kind: sharing.AccountKind, name: str) -> sharing.Account:
        """Have all numbers of a quota be the hub's again; raises Forbidden for whoever is no admin."""
        return sharing.Account.model_validate(self._json("DELETE", f"{_account(kind, name)}/quota", again=True))

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
        return sharing.UseOverTime.model_validate(
            self._json("GET", f"{_account(kind, name)}/use", params=_given(**whole))
        )

    def queue(self) -> list[sharing.Waiting]:
        """What waits, in the order of the turns, pool by pool."""
        return [sharing.Waiting.model_validate(each) for each in self._json("GET", "/api/queue")["queue"]]

    def set_priority(self, number: int, priority: int | None) -> Overview:
        """Give an experiment another priority, None: the one that its owner asked with.

        Raises NotFound, Forbidden, InvalidRequest, Conflict.
        """
        return self._overview("POST", f"/api/queue/{number}/priority", again=True, json={"priority": priority})

    def put_first(self, number: int) -> Overview:
        """Put an experiment ahead of everything that waits; raises NotFound, and Forbidden for whoever is no admin."""
        return self._overview("POST", f"/api/queue/{number}/first", again=True)

    def drain(self, name: str) -> NodeUse:
        """Start nothing more on a node; raises NotFound, and Forbidden for whoever is no admin."""
        return NodeUse.model_validate(self._json("POST", f"/api/nodes/{_part(name)}/drain", again=True))

    def undrain(self, name: str) -> NodeUse:
        """Start gangs on a node again; raises as `drain` does."""
        return NodeUse.model_validate(self._json("POST", f"/api/nodes/{_part(name)}/undrain", again=True))

    def pools(self) -> list[sharing.Pool]:
        """The pools: what they have, what of it is in use, and how many wait."""
        return [sharing.Pool.model_validate(each) for each in self._json("GET", "/api/pools")["pools"]]

    def audit(self, before: int | None = None, limit: int = 100) -> list[sharing.Deed]:
        """What admins have done, newest first, before number `before`; raises Forbidden for whoever is no admin."""
        body = self._json("GET", "/api/audit", params=_given(before=before, limit=limit))
        return [sharing.Deed.model_validate(each) for each in body["audit"]]

    def nodes(self) -> list[NodeUse]:
        """The nodes and how much of each is in use."""
        return [NodeUse.model_validate(each) for each in self._json("GET", "/api/nodes")["nodes"]]

    def upload_snapshot(self, id: str, data: bytes) -> None:
        """Store an archive, unless the service has it already; `id` is the sha256 of `data`."""
        try:
            self._call("HEAD", f"/api/snapshots/{id}")
        except errors.NotFound:
            self._call("PUT", f"/api/snapshots/{id}", content=data, timeout=UPLOAD_S)

    def deliver(self, key: AttemptId | str, token: str, delivery: Delivery) -> Instruction:
        """Hand over an attempt's records with the attempt's own token; the answer instructs its ranks."""
        path, records = f"/api/attempts/{key}/records", delivery.to_json()["records"]
        batches = [records[begin : begin + BATCH] for begin in range(0, len(records), BATCH)]
        for batch in batches or [[]]:
            answer = self._json("POST", path, token=token, again=True, json={"records": batch})
        return Instruction.model_validate(answer)

    def watch(self, after: int = 0, experiment: int | None = None) -> Iterator[Message]:
        """Everything that becomes known after message `after`, each once and in order, until the caller stops.

        A cut connection is made again and goes on after the last message that was seen. Patience begins anew
        with each connection that had lasted a while: silence is no reason to give up at its first cut. `close`,
        called from another thread, ends it, before the first message too.
        """
        return self._watch(after, experiment, self._closed)

    def _watch(self, after: int, experiment: int | None, closed: int) -> Iterator[Message]:
        from websockets.exceptions import ConnectionClosed

        trying = Patience(self._patience, self._say)
        while self._closed == closed:
            opened: float | None = None
            try:
                with self._stream(after, experiment) as socket:
                    opened = time.monotonic()
                    if self._closed != closed:
                        return
                    for frame in socket:
                        message = Message.model_validate_json(frame)
                        trying = Patience(self._patience, self._say)
                        if message.seq > after:
                            after = message.seq
                            yield message
            except CannotStart:
                raise
            except (OSError, ConnectionClosed, ServiceUnreachable) as error:
                cut: Exception = error
            else:
                cut = ServiceUnreachable("the service ended the stream")
            if self._closed != closed:
                return
            if opened is not None and time.monotonic() - opened > SILENCE_S:
                trying = Patience(self._patience, self._say)
            trying.wait(cut)

    def close(self) -> None:
        """Let go of the connections, which ends each `watch`; the next call makes new ones."""
        self._closed += 1
        for socket in list(self._streams):
            socket.close()
        if self._open is not None:
            self._open.close()
            self._open = None

    @contextmanager
    def _stream(self, after: int, experiment: int | None) -> Iterator[ClientConnection]:
        from websockets.exceptions import InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        address = self._locate()
        url = f"ws{address.url.removeprefix('http')}/api/stream?after={after}"
        try:
            with connect(
                url if experiment is None else f"{url}&experiment={experiment}",
                additional_headers={"Authorization": f"Bearer {address.token}"},
                open_timeout=ANSWER_S,
                close_timeout=1,
                max_size=FRAME_LIMIT,
                proxy=None,
            ) as socket:
                self._streams.add(socket)
                try:
                    yield socket
                finally:
                    self._streams.discard(socket)
        except InvalidStatus as error:
            raise _error(error.response.status_code, bytes(error.response.body or b"")) from None
        except InvalidHandshake as error:
            raise ServiceUnreachable(f"no stream at {address.url}: {error}") from None

    @contextmanager
    def _streamed(self, path: str, offset: int) -> Iterator[httpx.Response]:
        address = self._locate()
        headers = {"Authorization": f"Bearer {address.token}"}
        asked: dict[str, Any] = {"params": {"offset": offset}, "headers": headers, "timeout": READING_S}
        with self._http().stream("GET", address.url + path, **asked) as response:
            if response.is_error:
                raise _error(response.status_code, response.read())
            yield response

    def _overview(self, method: str, path: str, **request: Any) -> Overview:
        return Overview.from_json(self._json(method, path, **request))

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._call(method, path, **request).json()
        return answer

    def _call(
        self, method: str, path: str, *, again: bool = False, token: str | None = None, **request: Any
    ) -> httpx.Response:
        """The answer; `again` says that a POST may be sent twice without harm (the other methods may always)."""
        import httpx

        trying = Patience(self._patience, self._say)
        while True:
            try:
                address = self._locate()
                headers = {"Authorization": f"Bearer {token or address.token}"}
                response = self._http().request(method, address.url + path, headers=headers, **request)
            except CannotStart:
                raise  # trying again would only fail again
            except (ServiceUnreachable, httpx.ConnectError, httpx.ConnectTimeout) as error:
                trying.wait(error)
            except httpx.TransportError as error:
                if method == "POST" and not again:
                    raise ServiceUnreachable(f"the service did not answer {path}: {error!r}") from error
                trying.wait(error)
            else:
                if response.is_error:
                    raise _error(response.status_code, response.content)
                return response

    def _http(self) -> httpx.Client:
        import httpx

        if self._open is None:
            # No proxy of the environment: the service is on this machine, and its token stays here.
            self._open = httpx.Client(timeout=httpx.Timeout(ANSWER_S, connect=5.0), trust_env=False)
        return self._open


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
        raise errors.InvalidRequest(f"--rank {rank}: experiment #{number} has {there}")


def _error(status: int, content: bytes) -> DaylightError:
    import json

    try:
        body = json.loads(content or b"{}")
    except ValueError:
        body = {"message": content.decode(errors="replace")[:500]}
    if not body and status in _BARE:  # the answer to HEAD has no body
        return _BARE[status]("no such thing" if status == 404 else "no valid token")
    return errors.from_json(body if isinstance(body, dict) else {"message": str(body)}, status)


_BARE: dict[int, type[DaylightError]] = {401: errors.Unauthenticated, 404: errors.NotFound}


def _given(**query: Any) -> dict[str, Any]:
    """The parameters that have a value."""
    return {name: value for name, value in query.items() if value is not None}
