"""Launch an attempt: lock its folder, start the ranks, watch them, and record the outcome."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from kernel_backend.launch.folder import AttemptFolder, LauncherRecord
from kernel_backend.launch.gang import Gang
from kernel_backend.launch.gang_outcome import failed, gang_outcome, lost
from kernel_backend.launch.spool_uploader import SpoolUploader
from kernel_backend.launch.watch.logs import LogWatch
from kernel_backend.launch.watch.progress import Watch
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.progress import SHOW_STACKS
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.trial import Failure

WATCH_S = 0.05
SETTLE_S = 1.0  # for peers of a failed rank to write their failures, one of which may be the cause
FAREWELL_S = 60.0  # for the other ranks to exit after the first one has exited normally

_log = logging.getLogger(__name__)


def launch(path: Path) -> None:
    """Run one attempt to its end; return at once if another launcher runs it.

    SIGTERM makes the ranks commit a checkpoint and exit. The result is written to `outcome.json`, since not all
    engines report exit codes.
    """
    folder = AttemptFolder(path)
    lock = folder.lock()
    if lock is None:
        return
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    folder.write("launcher.json", LauncherRecord.of(os.getpid()).model_dump_json().encode())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per heartbeat is noise
    try:
        job = folder.job()
        gang = Gang(job, folder)
    except Exception as error:  # any recorded error is better than a launcher that vanishes
        _log.exception("the ranks could not be started")
        _write(folder, _never_started(error))
        return
    uploader = SpoolUploader(folder, job, gang.tell)
    uploader.start()
    _write(folder, _whatever_happens(gang, folder, job, asked))
    gang.close()
    uploader.finish()
    os.close(lock)


def _whatever_happens(gang: Gang, folder: AttemptFolder, job: LaunchSpec, asked: threading.Event) -> AttemptResult:
    """Return the gang's result; if the launcher itself fails, end the gang, and return it as lost."""
    try:
        return _until_the_end(gang, folder, job, asked)
    except Exception as error:
        _log.exception("the launcher cannot go on")
        gang.end()
        failure = Failure(rank=0, type=type(error).__name__, message=f"the launcher could not go on: {error}")
        return AttemptResult(outcome="lost", exit_codes=(), failure=failure, ended_at=time.time())


def _until_the_end(gang: Gang, folder: AttemptFolder, job: LaunchSpec, asked: threading.Event) -> AttemptResult:
    """Watch the ranks while they run; return their result, including matches of log policies."""
    ranks = len(gang.codes())
    watch = Watch(folder, ranks, job.config.hang_timeout)
    logs = LogWatch(folder, ranks, job.config.on_log)
    hung = _watch(gang, folder, asked, watch, logs)
    failures, steps, through = folder.failures(), watch.steps(), watch.through()
    result = gang_outcome(gang.codes(), failures, gang.ended_by_us, time.time(), steps, hung, through)
    if gang.lost and result.outcome == "failed":
        result = lost(result, gang.lost)
    preparing = result.failure is not None and watch.preparing(result.failure.rank)
    return result.model_copy(update={"matched": logs.finish(), "preparing": preparing})


def _watch(gang: Gang, folder: AttemptFolder, asked: threading.Event, watch: Watch, logs: LogWatch) -> Failure | None:
    """Watch the ranks until all have exited; after a rank's failure or a hang, kill the others.

    Returns the failure of a hang, else None. When `asked` is set, the ranks are instructed to `release`.
    """
    first_exit: float | None = None
    while None in (codes := gang.codes()):
        alive = [rank for rank, code in enumerate(codes) if code is None]
        now = time.monotonic()
        if asked.is_set():
            asked.clear()
            gang.tell("release")
        if len(alive) < len(codes):
            first_exit = first_exit or now
            if _over(codes, folder, now - first_exit):
                gang.end()
                return None
        if gang.pids():  # ranks that do not exist yet cannot hang
            watch.look(now)
        logs.look()
        if watch.overdue(alive):
            hung = watch.describe(alive, lambda ranks: _show_stacks(gang, ranks))
            gang.end()
            return hung
        time.sleep(WATCH_S)
    return None


def _show_stacks(gang: Gang, ranks: Collection[int]) -> None:
    for rank, pid in enumerate(gang.pids()):
        if rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SHOW_STACKS)


def _over(codes: Sequence[int | None], folder: AttemptFolder, since: float) -> bool:
    """Return True if the remaining ranks must be killed, as the first one exited `since` seconds ago."""
    broken = [rank for rank, code in enumerate(codes) if failed(code)]
    if not broken:
        return since > FAREWELL_S
    failures = folder.failures()
    # A rank that only lost its peer is not the cause: wait for the record of the rank that is.
    cause_known = any(rank not in failures or not failures[rank].consequence for rank in broken)
    return cause_known or since > SETTLE_S


def _never_started(error: Exception) -> AttemptResult:
    failure = Failure(rank=0, type=type(error).__name__, message=f"the ranks could not be started: {error}")
    return AttemptResult(outcome="failed", exit_codes=(), failure=failure, ended_at=time.time())


def _write(folder: AttemptFolder, result: AttemptResult) -> None:
    folder.write("outcome.json", json.dumps(result.to_json()).encode())
