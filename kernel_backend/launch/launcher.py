"""Launch the ranks of an attempt on one node: lock its folder, start the ranks, watch them, and record their end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from kernel_backend.launch.folder import AttemptFolder, LauncherRecord
from kernel_backend.launch.gang import Gang, own_forkserver
from kernel_backend.launch.gang_outcome import broken_rank, failed
from kernel_backend.launch.joining import Joining, Left, PeerWatch
from kernel_backend.launch.node import share
from kernel_backend.launch.service_address import connection
from kernel_backend.launch.spool_uploader import SpoolUploader
from kernel_backend.launch.watch.logs import LogWatch
from kernel_backend.launch.watch.progress import Watch
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.nodes import NodeIndex, placement_of
from kernel_backend.model.launch.progress import SHOW_STACKS
from kernel_backend.model.reports import NodeEnd
from kernel_backend.model.trial import Failure

WATCH_S = 0.05
SETTLE_S = 1.0  # for peers of a failed rank to write their failures, one of which may be the cause
FAREWELL_S = 60.0  # for the other ranks to exit after the first one has exited normally

_log = logging.getLogger(__name__)


def launch(path: Path, index: NodeIndex | None = None) -> None:
    """Run this node's part of an attempt to its end; return at once if another launcher runs it.

    With an `index` the engine has started a launcher on each node of a gang, and the ranks begin once these have met.
    SIGTERM and SIGURG make the ranks commit a checkpoint and exit. An engine that signals all processes of a gang, as
    Slurm does, sends SIGURG, which ranks ignore. How they ended is written to a file, since not all engines report exit
    codes.
    """
    folder = AttemptFolder(path, index.node if index is not None else 0)
    lock = folder.lock()
    if lock is None:
        return
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGURG):
        signal.signal(number, lambda *_: asked.set())
    folder.write_launcher(LauncherRecord.of(os.getpid()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per heartbeat is noise
    record = folder.write_outcome if index is None else folder.write_end
    with contextlib.ExitStack() as until_the_end:
        try:
            job = folder.job()
            started = _alone(job, folder) if index is None else _together(job, folder, asked, index, until_the_end)
        except Left as reason:
            _log.warning("%s", reason)
            record(_refused(str(reason), "GangNotFormed", reason.outcome))
        except Exception as error:  # any recorded error is better than a launcher that vanishes
            _log.exception("the ranks could not be started")
            record(_refused(f"the ranks could not be started: {error}", type(error).__name__, "failed"))
        else:
            _run(started, folder, asked, record)
    os.close(lock)


class _Started(NamedTuple):
    """The ranks of this node, and what is known of the gang's other nodes."""

    job: LaunchSpec  # with the actual placement
    gang: Gang
    names: tuple[str, ...]  # of all nodes
    peers: PeerWatch | None = None


def _alone(job: LaunchSpec, folder: AttemptFolder) -> _Started:
    """Start the ranks of a gang that has no other nodes."""
    return _Started(job, Gang(job, folder), ("",))


def _together(
    job: LaunchSpec, folder: AttemptFolder, asked: threading.Event, index: NodeIndex, until: contextlib.ExitStack
) -> _Started:
    """Meet the launchers of the other nodes, then start this node's ranks."""
    forkserver = until.enter_context(own_forkserver(job))
    token = folder.token()
    joining = Joining(job, index, share(os.environ, index), connection(job, token), token)
    until.callback(joining.close)
    met = joining.join(asked)
    job = job.model_copy(update={"placement": placement_of(met.nodes)})
    peers = PeerWatch(joining, job, index, lambda: connection(job, token), token)
    peers.start()
    until.callback(peers.finish)
    return _Started(job, Gang(job, folder, met, forkserver), tuple(node.name for node in met.nodes), peers)


def _run(started: _Started, folder: AttemptFolder, asked: threading.Event, record: Callable[[NodeEnd], None]) -> None:
    """Watch the ranks of this node until they have ended, and record how."""
    job, gang, names, peers = started
    uploader = SpoolUploader(folder, job, gang.tell) if folder.node == 0 else None  # rank 0 is on node 0
    if uploader is not None:
        uploader.start()
    end = _whatever_happens(gang, folder, job, asked, peers)
    record(end.model_copy(update={"names": names}))
    gang.close()
    if uploader is not None:
        uploader.finish()


def _whatever_happens(
    gang: Gang, folder: AttemptFolder, job: LaunchSpec, asked: threading.Event, peers: PeerWatch | None
) -> NodeEnd:
    """Return how the ranks ended; if the launcher itself fails, end them, and return them as lost."""
    try:
        return _until_the_end(gang, folder, job, asked, peers)
    except Exception as error:
        _log.exception("the launcher cannot go on")
        gang.end()
        return _refused(f"the launcher could not go on: {error}", type(error).__name__, "lost")


def _until_the_end(
    gang: Gang, folder: AttemptFolder, job: LaunchSpec, asked: threading.Event, peers: PeerWatch | None
) -> NodeEnd:
    """Watch the ranks while they run; return how they ended, including matches of log policies."""
    watch = Watch(folder, gang.ranks, job.config.hang_timeout)
    logs = LogWatch(folder, gang.ranks, job.config.on_log)
    hung = _watch(gang, folder, asked, watch, logs, peers)
    codes, failures = gang.codes(), folder.failures()
    return NodeEnd(
        node=folder.node,
        names=(),
        size=gang.size,
        codes=codes,
        killed=tuple(sorted(gang.ended_by_us)),
        failures=tuple(failures[rank] for rank in gang.ranks if rank in failures),
        steps=watch.steps(),
        hung=hung,
        through=watch.through(),
        preparing=watch.preparing(),
        matched=logs.finish(),
        lost=gang.lost or (peers.fenced if peers is not None else ""),
        ended_at=time.time(),
    )


def _watch(
    gang: Gang,
    folder: AttemptFolder,
    asked: threading.Event,
    watch: Watch,
    logs: LogWatch,
    peers: PeerWatch | None,
) -> Failure | None:
    """Watch the ranks until all have exited; after a failure of any rank of the gang, or a hang, kill the others.

    Returns the failure of a hang, else None. When `asked` is set, the ranks are instructed to `release`.
    """
    first_exit: float | None = None
    while None in (codes := gang.codes()).values():
        alive = [rank for rank, code in codes.items() if code is None]
        now = time.monotonic()
        if asked.is_set():
            asked.clear()
            gang.tell("release")
        if peers is not None and peers.fenced:
            gang.end()
            return None
        broken = peers.broken if peers is not None else ""
        if len(alive) < len(codes) or broken:
            first_exit = first_exit or now
            if peers is not None:
                peers.tell(broken_rank(codes))
            if _over(codes, folder, now - first_exit, broken):
                gang.end()
                return None
        if gang.pids():  # ranks that do not exist yet cannot hang
            watch.look(now)
        logs.look()
        if watch.overdue(alive):
            hung = watch.describe(alive, lambda ranks: _show_stacks(gang, ranks))
            if peers is not None:
                peers.tell(hung.message)
            gang.end()
            return hung
        time.sleep(WATCH_S)
    if peers is not None:
        peers.tell(broken_rank(codes), ended=True)
    return None


def _show_stacks(gang: Gang, ranks: Collection[int]) -> None:
    for rank, pid in gang.pids().items():
        if rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SHOW_STACKS)


def _over(codes: Mapping[int, int | None], folder: AttemptFolder, since: float, elsewhere: str) -> bool:
    """Return True if the remaining ranks must be killed, as the first one exited `since` seconds ago.

    `elsewhere` says what is broken on another node; "" for nothing.
    """
    broken = [rank for rank, code in codes.items() if failed(code)]
    if not broken and not elsewhere:
        return since > FAREWELL_S
    failures = folder.failures()
    # A rank that only lost its peer is not the cause: wait for the record of the rank that is.
    cause_known = any(rank not in failures or not failures[rank].consequence for rank in broken)
    return cause_known or since > SETTLE_S


def _refused(message: str, kind: str, outcome: Literal["failed", "lost", "released"]) -> NodeEnd:
    failure = Failure(rank=0, type=kind, message=message)
    return NodeEnd(node=0, names=("",), size=0, refused=failure, refused_as=outcome, ended_at=time.time())
