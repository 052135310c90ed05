"""Run attempts of a job whose program has a training loop of its own, each in a forked process of the test's own."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  # once, not in each forked process

from kernel_backend.checkpoints.directory import Directory
from kernel_backend.model.experiment import Config, parse_cadence
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note, Report, SpoolRecord, Started
from kernel_backend.model.resources import Share
from kernel_backend.runner import rank_process
from kernel_backend.runner.forms.script.training import ScriptTraining
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress
from tests.support.builders import snapshot
from tests.support.spools import read_after

Watch = Callable[[ScriptTraining], object]


@dataclass
class Ended:
    """Attempt that has ended: its exit code (negative for a signal), its log, and what it reported."""

    code: int
    log: str
    records: list[SpoolRecord]

    @property
    def notes(self) -> list[str]:
        """Return the texts of the reported notes."""
        return [each.text for each in self.records if isinstance(each, Note)]

    @property
    def started(self) -> Started:
        """Return the record that the training has started."""
        return next(each for each in self.records if isinstance(each, Started))

    @property
    def losses(self) -> dict[int, dict[str, float]]:
        """Return the reported values of training by step."""
        return {each.step: each.metrics for each in self.records if isinstance(each, Report)}


@dataclass
class Job:
    """Job of one slot in `folder`; with `every`, a checkpoint is due each so many steps.

    The source is a file, or with `cell` a notebook's, whose submitted cell begins at this line.
    """

    folder: Path
    source: str
    every: str = "1steps"
    options: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0
    cell: int = 0

    def __post_init__(self) -> None:
        code = self.folder / "code"
        code.mkdir(parents=True)
        (code / "definition.py").write_text(self.source)
        if self.cell:
            (code / "snapshot.json").write_text(snapshot(self.source, self.cell).model_dump_json())

    @property
    def home(self) -> Directory:
        """Return the storage of the job's checkpoints."""
        return Directory(self.folder / "checkpoints")

    def run(self, watch: Watch = lambda _: None, killed_at: int = 0) -> Ended:
        """Run the next attempt, from the newest checkpoint if there is one; it is killed once this step was saved."""
        self.attempts += 1
        place = self.folder / "attempts" / str(self.attempts)
        place.mkdir(parents=True)
        committed = self.home.committed()
        job = LaunchSpec(
            experiment=1,
            trial=1,
            attempt=self.attempts,
            config=Config.model_validate(
                {"threads": 1, "checkpoint_every": parse_cadence(self.every), "rehearse": False} | self.options
            ),
            params={},
            placement=(Share(node="here", kind="cpu", address="127.0.0.1", slots=(0,)),),
            python=sys.executable,
            cwd=str(self.folder),
            code=str(self.folder / "code"),
            snapshot="0" * 64,
            checkpoints=str(self.home.where),
            resume_from=committed[-1].id if committed else None,
            home=str(self.folder / "home"),
        )

        def prepare(training: Any) -> None:
            watch(training)
            if killed_at:
                training.events.on_step.append(lambda step: _killed(training) if step == killed_at + 1 else None)

        if not (child := os.fork()):
            _work(job, place, prepare)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return Ended(code, (place / "log").read_text(), read_after(place / "spool.jsonl", 0))


def _killed(training: Any) -> None:
    training._training._checkpoints._writer.wait()  # the checkpoint of the step before
    os.kill(os.getpid(), signal.SIGKILL)


def _work(job: LaunchSpec, place: Path, watch: Callable[[Any], None]) -> None:
    code = 1
    try:
        os.chdir(job.cwd)
        log = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1), os.dup2(log, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        spool, progress = Spool(place / "spool.jsonl", 0), Progress(place, 0)
        code = rank_process.work(job, Instructions(), spool, progress, watch)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
