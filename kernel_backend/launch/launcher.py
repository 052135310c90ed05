"""Launch an attempt's ranks on one node: lock its folder, start the ranks, watch them, and record how they end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from itertools import repeat
from pathlib import Path
from typing import Literal, NamedTuple

from kernel_backend.launch.deliveries import Deliveries, MeasurementsUploader
from kernel_backend.launch.folder import AttemptFolder, LauncherRecord
from kernel_backend.launch.gang import Gang, own_forkserver
from kernel_backend.launch.gang_outcome import broken_rank, failed
from kernel_backend.launch.joining import Joining, Left, PeerWatch
from kernel_backend.launch.measuring import Measuring
from kernel_backend.launch.node import share
from kernel_backend.launch.service_address import connection
from kernel_backend.launch.spool_uploader import SpoolUploader
from kernel_backend.launch.times import TimesReader
from kernel_backend.launch.utilisation.sampler import UseSampler
from kernel_backend.launch.watch.gpus import GpuWatch
from kernel_backend.launch.watch.logs import LogWatch
from kernel_backend.launch.watch.memory import MemoryWatch
from kernel_backend.launch.watch.progress import Watch
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.nodes import NodeIndex, placement_of
from kernel_backend.model.launch.progress import SHOW_STACKS
from kernel_backend.model.reports import NodeEnd
from kernel_backend.model.trial import Failure

WATCH_S = 0.05
SETTLE_S = 1.0  # time for the peers of a failed rank to write their failures, one of which may be the cause
FAREWELL_S = 60.0  # time for the other ranks to exit after the first one has exited normally

_log = logging.getLogger(__name__)


def launch(path: Path, index: NodeIndex | None = None) -> None:
    """Run the ranks of an attempt on this node to their end; return at once if another launcher runs or ran them.

    With `index`, the engine has started a launcher on each node of the gang; the ranks start when all of them have
    joined. SIGTERM or SIGURG to this process makes the ranks save a checkpoint and exit. Engines that signal all
    processes of a gang, such as Slurm, send SIGURG, as ranks ignore it. How the ranks ended is written to a file, since
    not all engines report exit codes.
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
        except Exception as error:  # any error is recorded, so that the launcher does not end without a trace
            _log.exception("the ranks could not be started")
            record(_refused(f"the ranks could not be started: {error}", type(error).__name__, "failed"))
        else:
            _run(started, folder, asked, record)
    os.close(lock)


class _Started(NamedTuple):
    """Ranks that were started on this node, with what is needed to watch them."""

    job: LaunchSpec  # with the actual placement
    gang: Gang
    names: tuple[str, ...]  # names of all nodes
    peers: PeerWatch | None = None


def _alone(job: LaunchSpec, folder: AttemptFolder) -> _Started:
    """Start the ranks of a gang that runs on this node only; return them with their job."""
    return _Started(job, Gang(job, folder), ("",))


def _together(
    job: LaunchSpec, folder: AttemptFolder, asked: threading.Event, index: NodeIndex, until: contextlib.ExitStack
) -> _Started:
    """Wait until the launchers of all nodes have joined, then start the ranks of this node.

    The event `asked` is set when the gang is to exit. `until` is closed after the ranks have ended, and then closes
    what is opened here.
    """
    forkserver = until.enter_context(own_forkserver(job))
    token = folder.token()
    joining = Joining(job, index, share(os.environ, index), connection(job, token), token, folder.write_wait)
    until.callback(joining.close)
    met = joining.join(asked)
    job = job.model_copy(update={"placement": placement_of(met.nodes)})
    peers = PeerWatch(joining, job, index, lambda: connection(job, token), token)
    peers.start()
    until.callback(peers.finish)
    return _Started(job, Gang(job, folder, met, forkserver), tuple(node.name for node in met.nodes), peers)


def _run(started: _Started, folder: AttemptFolder, asked: threading.Event, record: Callable[[NodeEnd], None]) -> None:
    """Watch and measure the ranks of this node until they have ended; then call `record` with how they ended.

    The event `asked` is set when the gang is to exit.
    """
    job, gang, names, peers = started
    gpus, memory = GpuWatch(), MemoryWatch()
    here = job.placement[folder.node]
    times = TimesReader(folder, dict(zip(gang.ranks, repeat(here.node))))
    measuring = Measuring(times, UseSampler(here, gang.ranks, gang.pids))
    measuring.start()
    deliveries = Deliveries(folder, job, gang.tell, measuring)
    # Only node 0 has a spool, which rank 0 writes.
    uploader = SpoolUploader(folder, deliveries) if folder.node == 0 else MeasurementsUploader(deliveries)
    uploader.start()
    end = _whatever_happens(gang, folder, job, asked, peers)
    gpu = gpus.error() if broken_rank(end.codes) or end.lost else ""
    _write_measured(folder, measuring)  # first: once the end is recorded, the service may kill this launcher
    record(end.model_copy(update={"names": names, "gpu": gpu, "memory": memory.lack()}))
    gang.close()
    uploader.finish()


def _write_measured(folder: AttemptFolder, measuring: Measuring) -> None:
    try:
        folder.write_measured(measuring.finish())
    except Exception:  # such as a full disk: the end of the ranks must be recorded all the same
        _log.exception("the final times of the ranks are lost")


def _whatever_happens(
    gang: Gang, folder: AttemptFolder, job: LaunchSpec, asked: threading.Event, peers: PeerWatch | None
) -> NodeEnd:
    """Watch the ranks of this node until they have ended, and return how.

    If the launcher itself fails, the ranks are killed, and the result says that they are lost. The event `asked` is set
    when the gang is to exit, and `peers` watches the other nodes.
    """
    try:
        return _until_the_end(gang, folder, job, asked, peers)
    except Exception as error:
        _log.exception("the launcher cannot go on")
        gang.end()
        return _refused(f"the launcher could not go on: {error}", type(error).__name__, "lost")


def _until_the_end(
    gang: Gang, folder: AttemptFolder, job: LaunchSpec, asked: threading.Event, peers: PeerWatch | None
) -> NodeEnd:
    """Watch this node's ranks until they have ended; return how, with the log lines that match the user's patterns.

    The event `asked` is set when the gang is to exit, and `peers` watches the other nodes.
    """
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
    """Watch this node's ranks until all have exited; if a rank of any node fails, or ranks hang, kill the running ones.

    Returns the failure if they hang, else None. When the event `asked` is set, the ranks are sent `release`: save a
    checkpoint and exit. `watch` follows their progress, `logs` searches their logs, and `peers` watches other nodes.
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
    """Return True if the ranks that still run must be killed, as other ranks have failed or exited.

    `since` is how many seconds ago the first rank exited. `elsewhere` describes a failure on another node; "" if there
    is none. After a failure, other ranks get a second to record theirs; after a normal exit, a minute to exit.
    """
    broken = [rank for rank, code in codes.items() if failed(code)]
    if not broken and not elsewhere:
        return since > FAREWELL_S
    failures = folder.failures()
    # If a rank failed only because its peer was lost, wait for the record of the rank that is the cause.
    cause_known = any(rank not in failures or not failures[rank].consequence for rank in broken)
    return cause_known or since > SETTLE_S


def _refused(message: str, kind: str, outcome: Literal["failed", "lost", "released"]) -> NodeEnd:
    failure = Failure(rank=0, type=kind, message=message)
    return NodeEnd(node=0, names=("",), size=0, refused=failure, refused_as=outcome, ended_at=time.time())
