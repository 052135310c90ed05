"""Rehearse restarts from checkpoints while the training runs, to find out how exactly a real restart continues.

The result is a guarantee for the user: a restart continues exactly at the step, or exactly at the epoch, or the
training must begin again from the start. A rehearsal is a separate process of low priority, which resumes the
checkpoint as a restart would, but changes nothing outside of itself; its variables are compared with those of the
training. The first checkpoint after some seconds of training is rehearsed, and one after the first epoch, once per
experiment. If variables differ, the checkpoints so far are moved away, and the next weaker guarantee is rehearsed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kernel_backend.definition.script.signs import Rung, Sign
from kernel_backend.model.trial import checkpoint_step
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.script.rehearsal.recorder import Recorder
from kernel_backend.runner.forms.script.rehearsal.stored import StoredVerdict
from kernel_backend.runner.forms.script.rehearsal.verdict import (
    Rehearsed,
    difference,
    explained,
    given,
    guarantee,
    limited,
    serves,
    weaker,
)
from kernel_backend.runner.forms.script.state.tombstones import BeginAnew

STEPS = 3  # number of steps compared after a checkpoint
SETTLED_S = 3.0  # shorter trainings are not rehearsed
REQUEST_S = 5.0  # a checkpoint is requested after this time if none was due
LIMIT_S = 600.0  # limit for a rehearsal


class Rehearsal:
    """Rehearsed restarts of a training, each in a process of its own, and the guarantee that follows from them.

    The guarantee says how exactly a real restart continues.
    """

    def __init__(
        self,
        rank: RankContext,
        training: ExternalTraining,
        recorder: Recorder,
        signs: Sequence[Sign],
        nested: bool,
        unobserved: Callable[[], AbstractContextManager[None]],
        stored: StoredVerdict,
    ) -> None:
        """Begin with the verdict of earlier attempts on how exactly a restart continues, or else with a presumption.

        `recorder` has the digests of the training's variables, `signs` the places in the source that may prevent an
        exact restart. `nested` means that the program has nested training loops. File operations within `unobserved()`
        are not attributed to the program. `stored` is the file of the verdict.
        """
        self._unobserved, self._stored = unobserved, stored
        self._rank, self._training, self._recorder = rank, training, recorder
        self._signs, self._nested = signs, nested
        known = stored.over(training.position.form)
        self._judged: bool = known.get("judged", False)
        self._given: Rung = given(known, signs)  # the guarantee on restarts
        self._why: str = known.get("why", "")
        self._active = self._can() and not known.get("settled", False)
        self._rung: Rung = "step" if self._active and not self._judged else self._given  # the one that is tried out
        self._epoch = 0  # checkpoints of earlier epochs are not rehearsed
        self._began = time.monotonic()
        self._requested = False
        self._steps = range(0)  # the steps to compare
        self._checkpoint: int | None = None  # step of the checkpoint to rehearse; 0: a run from the top
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._env = dict(os.environ)  # recorded before the program changes it
        self._limits: list[str] = known.get("limits", [])  # what is beyond every guarantee
        if self._judged:
            training.guarantee = self._guarantee() if not self._active else f"presumed {self._guarantee()}"
        self._said = training.guarantee
        training.guarantee = limited(self._said, self._limits)
        if self._active and not training.position.step:
            recorder.wanted |= set(range(1, STEPS + 1))
            if self._rung == "start":
                self._checkpoint, self._steps = 0, range(1, STEPS + 1)

    def state(self) -> dict[str, Any]:
        """Return the guarantee, its reason, and whether it is a verdict and the last one, as JSON for a checkpoint."""
        known = {"rung": self._given, "why": self._why, "judged": self._judged, "settled": not self._active}
        return known | ({"limits": self._limits} if self._limits else {})

    def limit(self, what: str) -> None:
        """Add to the guarantee, whatever it is or becomes, what a restart does not keep to."""
        if what not in self._limits:
            self._limits = [*self._limits, what]
            self._say(self._said)

    def _say(self, guarantee: str) -> None:
        self._said = guarantee
        self._rank.say_guarantee(limited(guarantee, self._limits))

    def allows(self, outermost: bool) -> bool:
        """Return True if a checkpoint may be saved now: a restart may go on from it, or its rehearsal is to tell that.

        `outermost` means that an iteration of an outermost loop starts.
        """
        return serves(self._rung if self._active else self._given, outermost)

    def taken(self, step: int) -> None:
        """Handle that a checkpoint of this step is being saved: choose it for a rehearsal, if one is due."""
        idle = self._active and self._process is None and self._checkpoint is None
        if idle and self._training.position.epoch >= self._epoch and self._age >= SETTLED_S:
            self._compare(step)

    def step(self, step: int) -> None:
        """Start a rehearsal if one is due, or evaluate one that has ended; called after each step of the training."""
        if self._recorder.failure and self._active:
            self._settle(Rehearsed({}, refused=self._recorder.failure))
        elif self._process is not None:
            if self._process.poll() is not None or self._age > LIMIT_S:
                self._settle(self._result())
        elif self._checkpoint is not None and self._recorder.of(self._steps) is not None:
            newest = self._training.newest
            if self._checkpoint == 0:
                with self._unobserved():
                    self._start(None)
            elif newest is not None and checkpoint_step(newest) >= self._checkpoint:
                self._start_from(self._checkpoint)
            elif not self._training.saving:
                self._give_up()  # it was not written: rehearse the next one
        elif self._active and not self._requested and self._age > REQUEST_S:
            self._requested = True
            self._training.request_checkpoint()

    def begin_anew(self, why: str) -> None:
        """Let restarts begin the program from its start from now on, for the reason `why`."""
        self._active, self._rung, self._why = False, "start", why
        self._give_up()
        self._training.set_aside_checkpoints()
        self._judge("start")
        self._say(f"presumed {self._guarantee()}")

    def forbid(self, why: str) -> None:
        """Rehearse no restart, as this machine cannot keep it apart from the training; the log tells `why`, once."""
        if self._active:
            self.close()
            self._recorder.wanted.clear()
            print(f"daylight: a restart is not rehearsed, as nothing here keeps it apart: {why}", file=sys.stderr)

    def close(self) -> None:
        """Kill the process of a running rehearsal, and start no other rehearsal."""
        self._active = False
        self._give_up()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _age(self) -> float:
        return time.monotonic() - self._began

    def _guarantee(self, steps: Mapping[int, object] | None = None) -> str:
        return guarantee(self._rung, explained(self._rung, self._why, self._signs), steps)

    def _can(self) -> bool:
        rank, job = self._rank, self._rank.job
        wanted = rank.config.reproducible != "off" and rank.config.rehearse
        alone = rank.ranks.size == 1 and rank.device.type == "cpu"
        return wanted and alone and job.trial == 1 and "://" not in job.checkpoints

    def _start_from(self, step: int) -> None:
        """Start a rehearsal that resumes the checkpoint saved at this step; give up if it was not committed."""
        with self._unobserved():
            checkpoint = self._training.saved_at(step)
            if checkpoint is None:
                self._give_up()
            else:
                self._start(checkpoint)

    def _give_up(self) -> None:
        self._checkpoint = None
        self._training.retain(None)

    def _compare(self, step: int) -> None:
        self._training.retain(step)  # newer ones may follow before it has been rehearsed
        self._checkpoint, self._steps = step, range(step + 1, step + STEPS + 1)
        self._recorder.wanted |= set(self._steps)

    def _start(self, checkpoint: str | None) -> None:
        """Start a rehearsal: a process, in a temporary folder, that resumes the checkpoint with this ID.

        With None, the process runs the program from its beginning.
        """
        job, attempt = self._rank.job, self._rank.progress.folder
        # In a folder of the job, whose files are not taken for the program's.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="rehearsal-", dir=attempt))
        stored = folder / "checkpoints"
        stored.mkdir()
        if checkpoint is not None:
            (stored / checkpoint).mkdir()
            for each in (Path(job.checkpoints) / checkpoint).iterdir():
                (stored / checkpoint / each.name).symlink_to(each)
        changes = {"resume_from": checkpoint, "attempt": job.attempt + 1, "until": None}
        (folder / "job.json").write_text(job.model_copy(update=changes).model_dump_json())
        asked = {"first": self._steps[0], "last": self._steps[-1], "attempt": str(attempt)}
        (folder / "rehearsal.json").write_text(json.dumps(asked))
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "kernel_backend.runner.rehearse", str(folder)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env)
        self._began = time.monotonic()

    def _result(self) -> Rehearsed:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None
        try:
            found = json.loads((self._folder / "digests.json").read_text())
        except (OSError, ValueError):
            log = (self._folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
            return Rehearsed({}, refused="; ".join(["it ended without a result", *log]))
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        digests = {int(step): names for step, names in found.get("digests", {}).items()}
        return Rehearsed(digests, found.get("error", ""), found.get("refused", ""))

    def _settle(self, rehearsed: Rehearsed) -> None:
        """Evaluate a rehearsal: report the guarantee if all variables are equal, else rehearse a weaker one next.

        If the rehearsal was stopped because the program acts outside its folder, note that, and rehearse no more.
        """
        if rehearsed.refused:
            self.close()
            self._rank.note(f"a restart was not rehearsed: {rehearsed.refused}")
            return
        mine = self._recorder.of(self._steps) or {}
        why = difference(mine, rehearsed)
        self._give_up()
        self._requested = False
        if why is None:
            self._agreed(mine)
        else:
            self._disagreed(why)

    def _agreed(self, mine: dict[int, Any]) -> None:
        again = self._rung == "step" and self._nested and self._epoch == 0 and self._training.position.epoch == 0
        self._epoch, self._active = 1, again
        if self._given != self._rung:  # no restart would go on from the checkpoints so far
            self._training.request_checkpoint()
        self._judge(self._rung)
        self._say(self._guarantee(mine))

    def _disagreed(self, why: str) -> None:
        if self._rung == "start":
            self._why = why
        else:
            self._why = self._why or why
            self._training.set_aside_checkpoints()
            self._rank.note(
                "all checkpoints so far are set aside, as no exact restart from them is possible", "warning"
            )
        self._rung = weaker(self._rung, self._signs, self._nested)
        if self._rung == "anew":
            self._active = False
        elif self._rung == "start":
            first = range(1, STEPS + 1)
            self._active = self._recorder.of(first) is not None
            self._checkpoint, self._steps = (0, first) if self._active else (None, self._steps)
        self._judge(self._rung)
        self._say(self._guarantee() if self._rung == "anew" else f"presumed {self._guarantee()}")
        source, outermost = self._training.resumed_from, self._training.position.form.get("outermost", False)
        if source is not None and not serves(self._given, outermost):
            raise BeginAnew(f"checkpoint {source}, from which this attempt went on, was no exact one: {self._why}")

    def _judge(self, rung: Rung) -> None:
        """Give restarts another guarantee, from now on and in later attempts."""
        self._judged, self._given = True, rung
        with contextlib.suppress(OSError):
            self._stored.write(self.state())
