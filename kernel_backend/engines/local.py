"""Run launchers as detached processes on this machine; after a restart they are found by pid and start time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import psutil
from pydantic import ValidationError

from kernel_backend.devices import local_node
from kernel_backend.engines.base import Caps, GangStatus, Unconfirmed
from kernel_backend.engines.folders import MARK, OUTCOMES, FolderEngine, GangFolders, never_launched, withheld
from kernel_backend.errors import Conflict, DaylightError
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec, token_digest
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome

START_S = 30.0  # time for a launcher to begin; later, the attempt counts as lost
KILL_S = 10.0  # time for a killed process to disappear
_log = logging.getLogger(__name__)


class LocalEngine(FolderEngine):
    """Engine that runs gangs on this machine.

    All its state is in the attempts' folders, so that it survives a restart of the service.
    """

    name = "local"
    caps = Caps(atomic_gang=True, preemption=False, quota=False, multi_node=False, per_user_identity=False)

    def __init__(self, home: Path) -> None:
        super().__init__(GangFolders(home))
        self._node = local_node()
        self._started: dict[str, subprocess.Popen[bytes]] = {}  # child processes to be reaped

    async def nodes(self) -> Sequence[Node]:
        """Return this machine as the only node."""
        return [self._node]

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start the launcher of an attempt, unless it has been started before.

        If concurrent calls start several launchers, a lock in the attempt's folder lets only one of them run.
        """
        folder = self._folders.of(job.id)
        if folder.launcher() is not None and folder.token_digest() != token_digest(token):
            await self.set_aside(job.id)
            raise Conflict(f"{folder.path} was another attempt's; it is set aside")
        await asyncio.to_thread(folder.prepare, job, token)
        if folder.launcher() is None:
            self._folders.mark(job.id)
            self._started[str(job.id)] = await asyncio.to_thread(_spawn, job, folder)

    async def statuses(self, of: Sequence[AttemptId] | None = None) -> Sequence[GangStatus]:
        """Return the status of every gang that was not forgotten; if `of` is given, only of attempts in it."""
        return await asyncio.to_thread(lambda: [self._known_status(key) for key in self._folders.listed(of)])

    async def release(self, key: AttemptId) -> None:
        """Make a gang save a checkpoint and exit, by SIGTERM to its launcher."""
        launcher = self._folders.of(key).launcher()
        if launcher is not None and launcher.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(launcher.pid, signal.SIGTERM)

    async def kill(self, key: AttemptId) -> None:
        """Kill all processes of an attempt by SIGKILL; return when none is left, or raise Unconfirmed."""
        await asyncio.to_thread(self._kill, key)

    async def forget(self, key: AttemptId) -> None:
        """Leave a gang out of `statuses` from now on, and delete its secret token."""
        self._reap(str(key))
        self._folders.forget(key)

    def _known_status(self, key: AttemptId) -> GangStatus:
        """Return the status of a gang; if its files cannot be read now, log the error and report it as running."""
        try:
            return self._status(key)
        except (OSError, DaylightError, ValidationError) as error:
            _log.warning("how attempt %s is cannot be told now: %s", key, error)
            return GangStatus(key=key, phase="running")

    def _status(self, key: AttemptId) -> GangStatus:
        # The token is read first, since `forget` deletes it.
        known = self._folders.of(key).token_digest()
        return self._look(key).model_copy(update={"token_digest": known})

    def _look(self, key: AttemptId) -> GangStatus:
        folder = self._folders.of(key)
        child = self._started.get(str(key))
        broken = bool(child and child.poll())
        self._reap(str(key))
        launcher = folder.launcher()
        alive = launcher is not None and launcher.alive()
        result = folder.result()  # read again, as the launcher may have written it just before it ended
        if result is not None:
            return GangStatus(key=key, phase="ended", outcome=OUTCOMES[result.outcome], result=result)
        if alive:
            return GangStatus(key=key, phase="running")
        if launcher is not None:
            return self._gone(key, Outcome.LOST, None)
        # The folder is as old as the submission; a launcher begins shortly after it.
        waiting = time.time() - self._folders.listed_at(key)
        if waiting < START_S and not broken:
            return GangStatus(key=key, phase="pending")
        return self._gone(key, Outcome.FAILED, never_launched(folder))

    def _gone(self, key: AttemptId, outcome: Outcome, result: AttemptResult | None) -> GangStatus:
        """Kill processes that are left of a gang whose launcher has ended; return the gang's status.

        The status has this outcome and result. If a process survives the kill, the gang is reported as running instead.
        """
        try:
            self._kill(key)
        except Unconfirmed:
            return GangStatus(key=key, phase="running")
        return GangStatus(key=key, phase="ended", outcome=outcome, result=result)

    def _kill(self, key: AttemptId) -> None:
        deadline = time.monotonic() + KILL_S
        while members := list(_members(self._folders.of(key))):
            if time.monotonic() > deadline:
                pids = [process.pid for process in members]
                raise Unconfirmed(f"processes {pids} of attempt {key} do not end; its slots stay taken", pids=pids)
            for process in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(members, timeout=0.5)
            self._reap(str(key))

    def _reap(self, key: str) -> None:
        child = self._started.get(key)
        if child is not None and child.poll() is not None:
            self._started.pop(key, None)  # a concurrent check may have removed it


def _spawn(job: LaunchSpec, folder: AttemptFolder) -> subprocess.Popen[bytes]:
    """Start the launcher of an attempt in a session of its own, so that it outlives the service and its terminal."""
    variables = {name: value for name, value in os.environ.items() if name not in withheld(job.config.env)}
    with folder.launcher_log.open("ab") as log:
        return subprocess.Popen(
            [job.python, "-P", "-m", "kernel_backend.launch", str(folder.path)],
            cwd=job.cwd,
            env={**variables, MARK: str(folder.path), "DAYLIGHT_HOME": job.home},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _members(folder: AttemptFolder) -> Iterator[psutil.Process]:
    """Yield all running processes of an attempt: launcher, ranks, loader workers, and all their descendants.

    They are found by an inherited environment variable, whose value is the attempt's folder. Ranks that a forkserver
    forked have the environment of the forkserver; they are found by their output, which goes to a rank's log in that
    folder. Process groups would not do, as their numbers are reused and children may leave them. Keys of attempts would
    not do either, as attempts in another home folder of the same user have the same keys.
    """
    place = os.path.realpath(folder.path)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get(MARK) == str(folder.path) or _writes_a_rank_log(process.pid, place)
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _writes_a_rank_log(pid: int, place: str) -> bool:
    """Return whether a process writes its stdout or stderr to the log of a rank in the folder `place`."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # the process has ended or is another user's, or this is not Linux
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}").removesuffix(" (deleted)")
            if os.path.dirname(path) == place and fnmatch(os.path.basename(path), "rank-*.log"):
                return True
    return False
