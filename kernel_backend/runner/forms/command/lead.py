"""Handle, on rank 0, what a program reports, requests and saves, and how long a search lets its trial train."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch

from kernel_backend.artifacts.program import answer_file, messages_file
from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.definition.forms.command import COMMAND
from kernel_backend.definition.forms.script import SCRIPT
from kernel_backend.durable import replacing
from kernel_backend.errors import DaylightError
from kernel_backend.home import program_folder
from kernel_backend.model.experiment import Metric
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note, Report, Started
from kernel_backend.model.trial import BEFORE
from kernel_backend.runner.artifacts import ArtifactWriter
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer, Position
from kernel_backend.runner.external_loop.reports import keeps
from kernel_backend.runner.forms.command.counts import Counts
from kernel_backend.runner.forms.command.files import CheckpointFiles, NoCopy
from kernel_backend.runner.forms.command.reports import Logged, LogLabels, Messages, Request, log_reader
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.loop.judgement import Judgement
from kernel_backend.runner.loop.target import Target
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import SingleRank

LEAST_S = 1.0  # minimum interval between checkpoints that the program did not request
COST = 50  # minimum interval between checkpoints, in durations of the last one
LOOK_S = 0.5  # interval between checks for changed files
SETTLED_S = 1.0  # seconds without a change of the folder before it is copied
QUIET_S = 0.3  # seconds without a change of the folder after which a save is complete
RESTLESS = 3  # after this number of intervals the folder is copied even if it keeps changing
MOST_NOTES = 100
_GUARANTEE = "not reproducible: the program goes on from what it saved"


class Lead:
    """Handler, on rank 0, of a program's reports, requests and checkpoints, and of its trial's target.

    The target is the epoch or step at which the trial's search decides whether it trains further.
    """

    # It shares what judges reports, holds the target and writes checkpoints with ExternalTraining, but not its
    # boundaries: a program goes on while its reports are read, saves its files when it likes, and is suspended or ended
    # from outside, so that there is no moment at which reports, files and an answer of the search belong together.

    def __init__(
        self, job: LaunchSpec, folder: Path, log: Path, instructions: Instructions, spool: Spool, progress: Progress
    ) -> None:
        """Choose the checkpoint to resume from, and restore its files in the program's checkpoint folder."""
        self._job, self._folder, self._spool, self._progress = job, folder, spool, progress
        self.files = CheckpointFiles(program_folder(Path(job.home), job.experiment, job.trial), job.uid)
        self._messages = Messages(folder / messages_file(0))
        self._log_reader = log_reader(log, job.config.metric_pattern, Path(job.code))
        self._target = Target(job.until, SingleRank(), instructions, progress)
        self._judgement = Judgement(job.config, self.note, _way(job.config.metric))
        self._artifacts = ArtifactWriter(job, spool, progress)
        storage = open_storage(job.checkpoints, job.uid)
        self._checkpoints = Checkpointer(
            job, SingleRank(), spool, storage, self.files, {}, NoCopy(torch.device("cpu")), eager=True
        )
        self.asks = False  # the program reads run.should_stop
        self._queue: deque[Logged] = deque()  # reported, but not counted yet
        self._metrics: dict[str, float] = {}  # metrics of the newest validation since the last checkpoint
        self._notes = 0
        self._due: list[str | None] = []  # pending answers to commit requests of the program
        self._saved = self._looked = time.monotonic()
        self._units_at = (time.time(), time.time())  # when the newest unit began and ended
        self.files.begin(job.resume_from)
        manifest = self._checkpoints.restore()
        if self.files.refused and manifest is not None:
            self.note(f"the program failed with its files as they were left, and goes on from their copy {manifest.id}")
        self._newest = 0 if manifest is None else manifest.step
        self._committed = None if manifest is None else manifest.id
        self._resumed = manifest
        state, left = self.files.state, self.files.left
        self.counts = Counts.of(state["counts"]) if state else Counts()
        if left:  # step numbers of earlier reports are not used again
            self.counts.skip(Counts.of(left["counts"]))
        self._began = self.counts.step
        self._queue.extend(Logged(*each) for each in state.get("held", ()))
        if state:
            self._judgement.restore(state["judgement"], of_another=manifest is not None and manifest.attempt == BEFORE)
        self.files.wrote(self._state(), self._committed)

    @property
    def step(self) -> int:
        """Return the number of steps that the program has taken."""
        return self.counts.step

    @property
    def failed_step(self) -> int | None:
        """Return the number of the step that fails if the program fails now; None before its first."""
        taken = self.counts.since(self._began)
        return taken + 1 if taken else None

    def note(self, text: str, level: Literal["info", "warning"] = "info") -> None:
        """Send the user a note; `level` says whether it is a warning."""
        self._spool.say(Note(text=text, level=level))

    def begin(self, world: int) -> bool:
        """Report that the training starts; return False if the program need not start, as there is nothing to train.

        That is the case if the trial has reached the target that its search has set, and the search sets no further one
        within some seconds. `world` is the number of ranks.
        """
        config = self._job.config
        self._spool.say(
            Started(
                backend="command",
                reason="the program connects its processes itself",
                world=world,
                steps_per_epoch=None,
                total_steps=config.steps,
                parameters=0,
                guarantee=_GUARANTEE,
                resumed_from=None if self._resumed is None else self._resumed.id,
            )
        )
        self._count()
        return not self.at_target or self.moves_on()

    # Reports

    def look(self) -> bool:
        """Read and handle the program's new messages and log lines; return True if there were any."""
        before = len(self._queue)
        requests = self._read(self._log_reader.new())
        some = bool(requests) or len(self._queue) > before
        for request in requests:
            self._carry_out(request)
        self._count()
        if self.files.marked():
            self._due.append(None)
        self._save()
        return some

    def end(self) -> None:
        """Read the remaining messages and the rest of the log after the program has ended."""
        while self.look():
            pass
        self._read(self._log_reader.rest())
        self._count()

    def _read(self, found: Iterable[Logged]) -> list[Request]:
        requests = []
        for each in self._messages.new():
            if isinstance(each, Request):
                requests.append(each)
            else:
                self._queue.append(each)
        self._queue.extend(found)
        for source, name in ((self._messages, "a message"), (self._log_reader, "--metric-pattern")):
            if source.unread:
                self._tell(f"{name} with no number: {source.unread[0][:200]}", "warning")
                source.unread.clear()
        return requests

    def _count(self) -> None:
        """Count the steps and epochs of new reports, and report their values to the service as points of the curves.

        Reports after the one with which the trial reaches its target wait until the search sets a further target;
        reports beyond the trial's maximum length are never counted.
        """
        counted = False
        while self._queue and not self.at_target and not self.over:
            self._report(self._queue.popleft())
            counted = True
        if counted:
            self.files.wrote(self._state(), self._committed)

    def _report(self, found: Logged) -> None:
        found = found._replace(values=self._job.config.metric.spelled(found.values))
        validation = found.validation or (_judges(self._job) and self._job.config.metric.name in found.values)
        place = self.counts.take(found, validation)
        if not found.values:
            return
        kind: Literal["training", "validation"] = "validation" if validation else "training"
        labelled = isinstance(self._log_reader, LogLabels)
        if validation or not labelled or keeps(place.step):
            self._spool.say(Report(kind=kind, step=place.step, epoch=place.epoch, metrics=found.values))
        self._progress.tick("step", place.step)
        if validation:
            self._units_at = (self._units_at[1], time.time())
            self._metrics = dict(found.values)
            self._judgement.validation(place.step, found.values)
        elif not labelled:  # a printed text decides nothing but what --metric names
            self._judgement.training(place.step, found.values)

    def _tell(self, text: str, level: Literal["info", "warning"] = "info") -> None:
        self._notes += 1
        if self._notes <= MOST_NOTES:
            self.note(text, level)

    # Requests

    def _carry_out(self, request: Request) -> None:
        if request.kind == "note":
            self._tell(str(request.fields.get("text", ""))[:2000])
        elif request.kind == "asks":
            self.asks = True
        elif request.kind == "checkpoint":
            self._due.append(request.answer)
        elif request.kind == "artifact":
            text = ""
            try:
                self._artifacts(str(request.fields["name"]), Path(str(request.fields["path"])))
            except (DaylightError, OSError, KeyError) as error:
                text = str(error)
            self._answer(request.answer, text)

    def _answer(self, id: str | None, text: str = "") -> None:
        if id is not None and id.isalnum():
            with replacing(self._folder / answer_file(id), durable=False) as file:
                file.write(text.encode())

    # Checkpoints

    def _save(self) -> None:
        """Save the program's checkpoint folder if the program has requested it, or if files in the folder have changed.

        Without a request, it is saved only at intervals, and once the files no longer change. If they never stop
        changing, it is saved nevertheless, after three intervals.
        """
        if self._due:
            self.files.commits = True
            if self._commit():
                due, self._due = self._due, []
                for each in due:
                    self._answer(each)
        elif not self.files.commits and time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            waited = self._looked - self._saved
            if waited < self._pause or self._checkpoints.busy or not self.files.changed:
                return
            # A program may save so often that its folder is never unchanged for long.
            if (self.files.quiet(SETTLED_S) or waited >= RESTLESS * self._pause) and self.files.stage():
                self._saved = self._looked
                self._checkpoints.save(self._moment())
                self._checkpoints.settle()

    @property
    def _pause(self) -> float:
        every = self._job.config.checkpoint_every
        if every is not None and every.seconds is not None:
            return every.seconds
        return max(LEAST_S, COST * self._checkpoints.cost.write)

    def _commit(self) -> bool:
        """Save the program's checkpoint folder and wait until the checkpoint is committed.

        Return False, without a checkpoint, if files in the folder are changing.
        """
        self._progress.tick("checkpoint", self.step)
        if not self.files.stage():
            return False
        moment = self._moment()
        self._checkpoints.finish(moment)
        return True

    def _moment(self) -> Position:
        self._newest = max(self.step, self._newest + 1)
        self._committed = f"{self._newest}-{self._job.attempt}"
        metrics, self._metrics = self._metrics, {}
        state = self._state()
        self.files.wrote(state, self._committed)
        facts = {"epoch": self.counts.epochs, "fraction": 0.0, "form": state, "commits": self.files.commits}
        return Position(self._newest, float(self.counts.epochs), metrics, facts)

    def _state(self) -> dict[str, Any]:
        judgement = self._judgement.state()
        return {"counts": self.counts.state(), "held": [list(each) for each in self._queue], "judgement": judgement}

    # Ends

    @property
    def at_target(self) -> bool:
        """Return True if the trial has reached the epoch or step after which its search compares it with others.

        At its maximum length, which ends the trial in any case, it is False.
        """
        return self._target.reached(self._units) and not self.over

    @property
    def over(self) -> bool:
        """Return True once a program in a search has reported the maximum number of epochs or steps of its trial."""
        return self._job.until is not None and self._units >= self._total

    @property
    def beyond(self) -> bool:
        """Return True once a program in a search has sent further reports after the maximum length of its trial."""
        return self.over and bool(self._queue)

    @property
    def _total(self) -> int:
        return self._job.config.steps or self._job.config.epochs

    @property
    def _units(self) -> int:
        return self.counts.step if self._job.config.steps is not None else self.counts.epochs

    def has_saved(self, told: float) -> bool:
        """Return True if the program has saved its state since it was requested to end, and is not writing files now.

        `told` is the Unix time of that request. If the program must end because the trial has reached its search's
        target or its maximum length, an earlier save counts as well, if it came in the second half of the time between
        the last two validations.
        """
        began, ended = self._units_at
        since = (began + ended) / 2 if self.at_target or self.over else told
        return self.files.saved_at >= since and self.files.quiet(QUIET_S)

    def moves_on(self) -> bool:
        """Wait some seconds for the search to set a further target for the trial; return True if it does."""
        return self._target.moves_on(self._units, self.step)

    def leave(self) -> None:
        """Save the checkpoint folder of a program that ended early.

        Nothing is saved if the program commits checkpoints itself and has changed files since its last commit.
        """
        if not (self.files.commits and self.files.changed):
            self._commit_at_last()

    def finish(self) -> None:
        """Save the checkpoint folder of a program that has trained to its end.

        Raises InvalidDefinition if the program is in a search and has never reported the metric that the search
        compares.
        """
        self._judgement.must_have_validated(self.step)
        self._judgement.end(())
        self._commit_at_last()

    def _commit_at_last(self) -> None:
        while not self._commit():
            time.sleep(0.1)

    def close(self) -> None:
        """Wait, for a limited time, until a checkpoint in progress is written."""
        with contextlib.suppress(DaylightError):
            self._checkpoints.close()


def _judges(job: LaunchSpec) -> bool:
    """Return True if each report with the metric of `--metric` counts as a validation.

    This holds in a search, and if the option `--metric` was set.
    """
    return job.config.search is not None or job.config.metric != Metric()


def _way(metric: Metric) -> str:
    pattern = f", or --metric-pattern '{metric.name}: (?P<{metric.name}>[\\d.]+)'" if metric.name.isidentifier() else ""
    return f"{SCRIPT.way_of(metric)}, or {COMMAND.way_of(metric)}{pattern}"
