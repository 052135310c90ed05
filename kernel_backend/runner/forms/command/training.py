"""Supervise a program: start it, write heartbeats as long as it works, and end it when its rank must exit."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kernel_backend.definition.contract import Definition
from kernel_backend.home import program_folder
from kernel_backend.model.frames import Sources
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.runner import failure
from kernel_backend.runner.forms.command.board import Board
from kernel_backend.runner.forms.command.environment import argv, program_env
from kernel_backend.runner.forms.command.files import CheckpointFiles
from kernel_backend.runner.forms.command.lead import QUIET_S, Lead
from kernel_backend.runner.forms.command.outcome import program_failure
from kernel_backend.runner.forms.command.process import ProgramProcess
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress
from kernel_backend.snapshots.shipped import editable_folders, shipped_folders

LOOK_S = 0.05
CPU_S = 1.0  # interval between checks of CPU time
SETTLED_S = 1.0  # seconds without a change of its checkpoints before a program is asked to end
SAVING_S = 30.0  # limit of that waiting
GRACE_S = 30.0  # seconds between SIGTERM and SIGKILL
CLEANUP_S = 5.0  # the same, if the program has nothing left to save
FAILED = 1


class CommandTraining:
    """Training of one rank that runs a program, from its start to its end."""

    def __init__(
        self,
        job: LaunchSpec,
        definition: Definition,
        snapshot: Snapshot | None,
        instructions: Instructions,
        spool: Spool,
        progress: Progress,
    ) -> None:
        assert definition.command is not None
        self._job, self._command, self._snapshot = job, definition.command, snapshot
        self._instructions, self._progress = instructions, progress
        self._rank, self._size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        attempt = progress.folder
        self._log = attempt / f"rank-{self._rank}.log"
        self._board = Board(attempt / "program", self._rank, self._size)
        self._checkpoints = CheckpointFiles(program_folder(Path(job.home), job.experiment, job.trial), job.uid)
        self._lead = None
        if spool.speaks:
            self._lead = Lead(job, self._board.folder, self._log, instructions, spool, progress)
        self._process: ProgramProcess | None = None
        self._seen = (0, 0.0)  # bytes of its log and CPU seconds at the last sign of progress
        self._computed = 0.0  # time at which the CPU seconds were last read

    @property
    def step(self) -> int:
        """Return the number of steps that the program has reported; 0 on ranks other than 0."""
        return self._lead.step if self._lead is not None else 0

    def train(self) -> int:
        """Run the program until it ends or must end; return the exit code of the rank.

        It must end early if its slots are reclaimed, or if its search does not train the trial further.
        """
        if self._lead is not None and not self._lead.begin(self._size):
            self._board.leave()
        if self._board.leaving:
            return self._left()
        process = self._process = self._start()
        while (code := process.code()) is None:
            self._watch(process)
            if self._instructions.release or (self._lead is not None and self._must_leave(self._lead, process)):
                self._board.leave()
            if self._board.leaving:
                self._end_early(process)
                return self._left()
            time.sleep(LOOK_S)
        process.end()
        return self._ended(code)

    def close(self) -> None:
        """End the program if it is still running, and wait for a checkpoint that is being written."""
        if self._process is not None:
            self._process.end()
        if self._lead is not None:
            self._lead.close()

    def _start(self) -> ProgramProcess:
        job, code = self._job, Path(self._job.code)
        checkpoints = self._checkpoints.folder
        words = argv(self._command, job, checkpoints, sys.executable)
        if self._command.program is not None and self._command.at == 0:
            Path(words[0]).chmod(0o755)  # archives do not store file modes
        project = self._snapshot.project if self._snapshot is not None else None
        paths = shipped_folders(code, project)
        if project is not None:  # files that only the running program finds are read from their original folder
            paths += [Path(project.root, path) for path in project.paths]
            if self._command.program is not None and not self._command.module:
                paths += [Path(project.root, self._command.program).parent]
        paths += [Path(job.cwd)] if self._command.module else []
        paths += editable_folders(code)
        env = program_env(os.environ, job, self._board.folder, checkpoints, paths, sys.executable)
        return ProgramProcess(words, env)

    def _watch(self, process: ProgramProcess) -> None:
        """Write a heartbeat if the program has written to its log or used CPU time since the last call."""
        size, seconds = self._log.stat().st_size, self._seen[1]
        if time.monotonic() - self._computed > CPU_S:
            self._computed, seconds = time.monotonic(), process.seconds()
        if (size, seconds) != self._seen:
            self._seen = size, seconds
            self._progress.tick("step", self.step + 1)

    def _must_leave(self, lead: Lead, process: ProgramProcess) -> bool:
        """Handle the program's new messages; return True if the program must end, as its search trains it no further.

        At the epoch or step at which a search compares the trial, the program is suspended until the search has
        decided.
        """
        lead.look()
        if lead.beyond:
            return True
        if not lead.at_target:
            return False
        # It may be about to save what it has just reported.
        self._settle(process)
        process.pause()
        goes_on = lead.moves_on()
        process.go_on()
        return not goes_on

    def _settle(self, process: ProgramProcess) -> None:
        """Wait until the program has ended, or has finished a save that it may have just begun, for a limited time."""
        begun = since = time.monotonic()
        files = self._checkpoints.fingerprint()
        saved = False
        while process.code() is None and time.monotonic() - begun < SAVING_S:
            if (found := self._checkpoints.fingerprint()) != files:
                files, since, saved = found, time.monotonic(), True
            if time.monotonic() - since >= (QUIET_S if saved else SETTLED_S):
                return
            self._progress.tick("waiting", self.step)
            time.sleep(LOOK_S)

    def _end_early(self, process: ProgramProcess) -> None:
        """End a program early: request it by `run.should_stop`, then send SIGTERM, then SIGKILL.

        A program may continue after SIGTERM, in order to save or because a library catches the signal, as TensorFlow's
        coordination service does. It is killed once it has saved.
        """
        process.go_on()
        if self._lead is not None:
            self._lead.look()
        if self._lead is not None and self._lead.asks:
            self._wait(process, SAVING_S)
        self._settle(process)
        told, cleaned = time.time(), time.monotonic() + CLEANUP_S
        process.terminate()

        def enough() -> bool:
            if self._lead is not None and time.monotonic() >= cleaned and self._lead.has_saved(told):
                self._board.kill()
            return self._board.killing

        self._wait(process, GRACE_S, enough)
        process.end()

    def _wait(self, process: ProgramProcess, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Wait until the program has ended, `enough` returns True, or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while process.code() is None and time.monotonic() < deadline and not enough():
            self._progress.tick("waiting", self.step)
            if self._lead is not None:
                self._lead.look()  # the program may wait for a commit
            time.sleep(LOOK_S)

    def _left(self) -> int:
        """Wait until the programs of all ranks, which were ended early, are gone; return the exit code of this rank.

        Rank 0 then saves the program's checkpoint folder.
        """
        self._board.ended()
        if self._lead is None:
            return RELEASED
        while not self._board.all_ended:
            self._progress.tick("waiting", self.step)
            time.sleep(LOOK_S)
        self._lead.end()
        if self._lead.over:
            self._lead.finish()
            return FINISHED
        self._lead.leave()
        return RELEASED

    def _ended(self, code: int) -> int:
        """Handle that this rank's program has ended by itself with exit code `code`; return the exit code of the rank.

        A failure is written to a file. After a success, wait until the programs of all ranks have ended; rank 0 then
        saves the checkpoint folder.
        """
        if self._lead is not None:
            self._lead.end()
        if self._board.leaving:
            return self._left()
        if code != 0:
            step = None if self._lead is None else self._lead.failed_step
            sources = Sources(Path(self._job.code), Path(self._job.cwd), self._snapshot)
            found = program_failure(code, self._log, self._rank, step, str(self._command), sources)
            failure.write(found, self._log.parent)
            if code > 0 and not found.consequence:
                self._checkpoints.failed()
            return FAILED
        self._board.ended()
        while not self._board.all_ended:  # one rank may evaluate long after the others have ended
            self._progress.tick("waiting", self.step)
            if self._instructions.release:
                self._board.leave()
            if self._board.leaving:
                return self._left()
            time.sleep(LOOK_S)
        if self._lead is not None:
            if self._lead.at_target and not self._lead.moves_on():
                return self._left()
            self._lead.end()
            self._lead.finish()
        return FINISHED
