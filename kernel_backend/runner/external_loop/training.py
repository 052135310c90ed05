"""Train in a loop that the user or a framework runs: Daylight adds checkpoints, reports and stopping.

This is the core of every form whose loop Daylight does not own: `train(run)`, Lightning, Keras, Hugging Face.

A form creates one `ExternalTraining` from its RankContext in every rank and, in this order, calls:

1. `register(name, value)` for each part that a checkpoint holds: modules, optimizers, schedules, scalers, generators,
   tensors, dicts and lists, and anything with `state_dict` and `load_state_dict`. The resume checkpoint was chosen when
   the object was created, so the part is restored on return; the result tells whether it was. Modules start with
   rank 0's weights, and from then on their gradients are averaged over the ranks in each backward pass (see
   `gradients.py`; `average=False` leaves that to the framework).
2. `begin()` before the first step: it restores random states and reports that the training has started.
   `position.step` and `position.epoch` are the position to resume at. If the form needs other state, such as the
   position in the data, it sets `form_state`, a function that returns it as JSON and is called for each checkpoint;
   after a restore that state is in `position.form`.
3. For each step: `begin_step(samples)` (this rank's part of the global batch, if known, weights gradients and reports),
   the training step itself, `report("training", {"loss": 0.3})` and `report("validation", ...)`, and `end_step()`.
   After the last step of an epoch, `end_epoch()`, once the epoch's validation was reported. A form whose ranks agree
   by a message of its own sends their `requests()` with it, and hands the answer to both as `agreed`.
4. `finish()` at the end of the training, and in any case `close()`.

`end_step` and `end_epoch` are step boundaries, which all ranks must call equally often. There the ranks agree, by one
small all-reduce unless they have `agreed`, on what to do: report, save a checkpoint (on the adaptive cadence or
`--checkpoint-every`, or for the best validation by `--metric`), wait for a search's next target, or leave. Both raise
`Leave` to end the training early: do not catch it, except to return its `code`. Between two boundaries only gradients
are exchanged.

Validations are reported by the ranks that computed them, and averaged by samples. A validation counts for the step at
whose boundary it is known: `report` it before `end_step` or `end_epoch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.optimizer import register_optimizer_step_post_hook

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.reports import Fact, Kind, Report
from kernel_backend.model.trial import BEFORE
from kernel_backend.model.values import listed
from kernel_backend.runner.checkpoint.checkpointer import SHOWN, Checkpointer, Position
from kernel_backend.runner.checkpoint.contents import OfRank
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.determinism.digests import weights
from kernel_backend.runner.determinism.retained_state import RetainedState, of_each_slot, without
from kernel_backend.runner.external_loop.contents import RegisteredContents
from kernel_backend.runner.external_loop.gradients import AveragedGradients
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.parts import part_of
from kernel_backend.runner.external_loop.reports import PendingReports, merged
from kernel_backend.runner.first_epoch import FirstEpoch
from kernel_backend.runner.gradients.reducer import ControlFlags
from kernel_backend.runner.gradients.waiting import spend_gradients
from kernel_backend.runner.loop.cadence import QUIET_S, CadenceTimer
from kernel_backend.runner.loop.judgement import Judgement
from kernel_backend.runner.loop.target import Target
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.timing.clock import CLOCK

_MANY = 200  # limit of a rank's pending reports


@dataclass
class LoopPosition:
    """Progress of a training in a loop of the user or a framework; equal on all ranks, and saved in checkpoints."""

    step: int = 0  # steps taken
    epoch: int = 0  # epochs completed
    fraction: float = 0.0  # part of the current epoch done, with this step, if its length is known
    form: dict[str, Any] = field(default_factory=dict)  # the form's own state when this attempt began
    over: bool = False  # all steps have been taken
    training: int = 0  # number of trainings that the program had ended when the present one began
    origin: int = 0  # epochs that had been completed when it began: curves count from there

    @property
    def epoch_of_curves(self) -> float:
        """Return how many epochs of the present training have been completed, with a fraction."""
        return self.epoch - self.origin + self.fraction

    def begin_training(self, number: int) -> None:
        """Count the epochs of curves from here on, as a training begins before which `number` others have ended."""
        self.training, self.origin, self.fraction = number, self.epoch, 0.0


class ExternalTraining:
    """Training in a loop of the user or a framework.

    All ranks call every method except `report` and `request_checkpoint`, which any rank may call.
    """

    def __init__(
        self,
        rank: RankContext,
        form: str = "loop",
        refuses: Callable[[Manifest], str] = lambda _: "",
        *,
        own: OfRank | None = None,
        steps_per_epoch: int | None = None,
        validates: bool = False,
        schedules_know_length: bool = False,
    ) -> None:
        """Set up the training from the objects of this rank, and choose the checkpoint to resume from.

        `refuses` returns why a checkpoint is not to be resumed from, "" if it may be. Values are restored from the
        checkpoint when they are registered. `own` is what each rank has for itself, by default its random states.
        `validates` means that a validation follows the first epoch. `schedules_know_length` means that learning rate
        schedules depend on the length of the training.
        """
        job, ranks, spool = rank.job, rank.ranks, rank.spool
        self.rank = rank
        CLOCK.between = "forward"
        self.position = LoopPosition()
        self.form_state: Callable[[], dict[str, Any]] = dict
        self.guarantee = exactness.guarantee(
            rank.config, ranks.size, rank.device, asks_rank=ranks.size > 1
        )  # guarantee at the start; a form may replace it
        self.ready: Callable[[], bool] = lambda: True  # the form's state can be saved at this boundary; all ranks agree
        self.expected_steps = rank.config.steps  # steps of the whole training, if known before it begins
        self.steps_per_epoch = steps_per_epoch
        # Tensors are copied at once, as a user's loop may write to any part at any time. Without, the form calls
        # `settle` before anything changes them.
        self.eager = True
        # Returns what was reported since the last boundary, averaged over the ranks; a form may replace it.
        self.collect: Callable[[], Sequence[Report]] = self._averaged_reports
        self.in_step = False  # True between begin_step and end_step
        self.counts = True  # False: an earlier cell trains, whose validations do not decide anything
        self.metrics: dict[str, float] = {}  # metrics of the validation at this step
        self.first_epoch = FirstEpoch(job, ranks, spool, rank.code_id, validates)
        self.contents = RegisteredContents(
            ranks, rank.config.seed, form == "loop", rank.config.weights_from is not None, own
        )
        self.called: Mapping[str, Any] = {}  # objects whose code runs in steps; a form sets them before it begins
        self.registered: list[Any] = []  # what checkpoints hold
        storage = open_storage(job.checkpoints, job.uid)
        copy = HostCopy(rank.device)
        self._checkpoints = Checkpointer(
            job, ranks, spool, storage, self.contents, rank.numerics, copy, eager=True, refuses=refuses
        )
        self.pace = CadenceTimer(
            steps_per_epoch,
            rank.config.checkpoint_every,
            lambda: self._checkpoints.cost,
            lambda: self._checkpoints.busy,
        )
        self._target = Target(job.until, ranks, rank.instructions, rank.progress)
        self._samples: tuple[int, int] | None = None  # of this rank, of the global batch; None: equal parts
        # Called by `close`.
        self.ends: list[Callable[[], object]] = [register_optimizer_step_post_hook(spend_gradients).remove]
        self._judgement = Judgement(rank.config, rank.note, form_named(form).way_of(rank.config.metric))
        self._requested = False
        self._held = False  # a due checkpoint is postponed to the next boundary
        self._told = time.monotonic()  # time of the last exchange of reports
        self._began: int | None = None  # the step at which this attempt began; None before
        self._averaged: set[int] = set()  # `id()` of parameters whose gradients are averaged
        manifest = self._checkpoints.restore(schedules_know_length)
        self.resumed_from = None if manifest is None else manifest.id
        self.resumed_params = dict(job.params) if manifest is None else dict(manifest.params)
        self.reports = PendingReports()
        if manifest is not None:
            saved = manifest.state["training"]
            self.position = LoopPosition(manifest.step, saved["epoch"], saved["fraction"], saved["form"])
            self.position.training, self.position.origin = saved.get("origin", (0, 0))
            self.metrics = dict(manifest.metrics)
            self.reports = PendingReports(saved["reports"])
            self._judgement.restore(saved, of_another=manifest.attempt == BEFORE)
            # Not restored, as a continued experiment may have more steps.
            self.position.over = self._is_over
            self.first_epoch.restore(saved["first_epoch"])
            if changed := exactness.differences(manifest.numerics, rank.numerics):
                rank.note(f"bits may differ from step {manifest.step + 1} on: {changed}", "warning")

    def watch_calls_again(self) -> None:
        """Go on recording how modules are called, after `nn.Module.__call__` was replaced."""
        self._checkpoints.watch_calls_again()

    def register(self, name: str, value: Any, *, average: bool = True) -> bool:
        """Make `value` part of every checkpoint under `name`; return True if its state was restored from one.

        With `average`, the gradients of a module, or of an optimizer's parameters that belong to no registered module,
        are averaged over the ranks. Raises InvalidDefinition for a value without state, or a name that is in use.
        """
        module = value if isinstance(value, nn.Module) else None
        restored = self.contents.add(name, part_of(name, value), module)
        self.registered.append(value)
        if module is not None and not restored:
            share([*module.parameters(), *module.buffers()], self.rank.ranks)
        if average:
            self._average(name, value)
        return restored

    def begin(self) -> None:
        """Restore random states and report the start; called before the first step.

        In a search, a trial trains up to a length (its target) at which the trials are compared. If it has reached the
        target already, wait some seconds for a longer one; raise Leave if none is set.
        """
        if self._began is not None:
            return
        self._began = self.position.step
        self._checkpoints.eager = self.eager
        if self.contents.missing:
            lacking = listed(self.contents.missing, SHOWN)
            self.rank.note(f"the other trial's weights lack {lacking}, or have another shape: they begin anew")
        if self.resumed_from is None and self.contents.modules and self.rank.ranks.rank == 0:
            found = weights(nn.Module(), self.contents.modules)
            self.rank.spool.say(Fact(name="weights", value=found.to_json()))
        modules = self.contents.modules.values()
        each = {id(parameter): parameter for module in modules for parameter in module.parameters()}
        self._find_kept()
        self.rank.say_started(
            steps_per_epoch=self.steps_per_epoch,
            total_steps=self.expected_steps,
            parameters=sum(parameter.numel() for parameter in each.values()),
            guarantee=self.guarantee,
            resumed_from=self.resumed_from,
        )
        self.contents.restore_own()
        if not self.position.over and self._target.reached(self._units):
            self._say_validation()  # the last attempt lost its slots, or the service, before a further target came
            if not self._target.moves_on(self._units, self.position.step):
                raise Leave(RELEASED)
        self._tick()

    def report(
        self, kind: Kind, values: Mapping[str, Any], step: int | None = None, weight: float | None = None
    ) -> None:
        """Report values of the current step or, between two steps, of the last one.

        `step` replaces the number of steps taken as the label of training values. Values are averaged over the ranks by
        `weight`, by default the number of samples of each rank in this step. While nothing `counts`, validations are
        reported as training values.
        """
        kind = kind if self.counts else "training"
        now = self.position.step + self.in_step
        if weight is None:
            weight = 1.0 if self._samples is None else float(self._samples[0])
        label = now if step is None or kind == "validation" else step
        self.reports.add(kind, label, self.position.epoch_of_curves, self.rank.config.metric.spelled(values), weight)

    def take(self, batch: Batch) -> None:
        """Add the samples of a training batch to the record of the first epoch; do nothing in later epochs."""
        self.first_epoch.take([batch])

    def tick_validation(self) -> None:
        """Write a heartbeat for a running validation, so that the launcher does not consider it a hang."""
        self.rank.progress.tick("validation", self.position.step)

    @property
    def needs_pairs(self) -> bool:
        """Return True if a registered module has BatchNorm, for which a batch needs at least two samples."""
        modules = self.contents.modules.values()
        return any(isinstance(each, _BatchNorm) for module in modules for each in module.modules())

    @property
    def newest(self) -> str | None:
        """Return the ID of the newest checkpoint that was committed or restored; None if there is none."""
        return self._checkpoints.newest

    @property
    def saving(self) -> bool:
        """Return True while a checkpoint is being written."""
        return self._checkpoints.busy

    def retain(self, step: int | None) -> None:
        """Protect the checkpoint saved at `step` from deletion, instead of the one named by an earlier call.

        None protects no checkpoint.
        """
        self._checkpoints.retained = step

    def saved_at(self, step: int) -> str | None:
        """Return the ID of the checkpoint saved at this step; None if there is none, or it is not committed yet."""
        return self._checkpoints.saved_at(step)

    def set_aside_checkpoints(self, only: str | None = None) -> None:
        """Quarantine all committed checkpoints, or `only` that with this ID: no training resumes from them any more."""
        self._checkpoints.set_aside(only)

    def request_checkpoint(self) -> None:
        """Request a checkpoint, which all ranks save at the end of the step if any rank has called this."""
        self._requested = True

    def begin_step(self, samples: tuple[int, int] | None = None) -> None:
        """Begin a step; `samples` are the sample counts of this rank and of the global batch.

        None means that all ranks have equal shares of the batch.
        """
        self.begin()
        if self._held and self.ready():  # more steps follow than expected
            self._save(wait=False)
        self._samples, self.in_step = samples, True

    def settle(self) -> None:
        """Wait until a started checkpoint is copied; call it, unless `eager`, before anything changes what it holds."""
        self._checkpoints.settle()

    def end_step(self, last: bool = False, agreed: ControlFlags | None = None) -> None:
        """End a step: report, save, wait for a search's next target or leave, as the ranks agree. Raises Leave.

        `last` marks the last step of an epoch or of the training: `end_epoch` or `finish` then saves a due checkpoint.
        `agreed` are the `requests` of all ranks, if they have exchanged them already.
        """
        self.abandon_step()
        self._boundary(epoch_ends=False, last=last, agreed=agreed)

    def abandon_step(self) -> None:
        """End a step that the user's code has left early, as with `break`, without reporting or saving."""
        self.position.step += 1
        self.position.over = self.position.over or self._is_over
        self._samples, self.in_step, self.metrics = None, False, {}

    def end_epoch(self, last: bool = False, agreed: ControlFlags | None = None) -> None:
        """End an epoch: report, save, wait for a search's next target or leave, as the ranks agree. Raises Leave.

        Call it after the epoch's last step has ended. `last` marks the last epoch of the training: `finish` then saves
        a due checkpoint. `agreed` are the `requests` of all ranks, if they have exchanged them already.
        """
        self.position.epoch += 1
        self.position.fraction = 0.0
        self._boundary(epoch_ends=True, last=last, agreed=agreed)

    def restart(self) -> None:
        """Count steps and epochs from zero, although a checkpoint was restored: the loop begins anew."""
        self.position = LoopPosition()

    def finish(self) -> None:
        """Average the last reports over the ranks and commit the final checkpoint.

        Raises InvalidDefinition if a trial of a search has reported no validation, NotFinite if a loss and weights are
        not finite.
        """
        self.begin()
        self.position.over = True
        self._tell(self.collect())
        self._judgement.must_have_validated(self.position.step)
        self._judgement.end(self.contents.modules.values())
        self.first_epoch.finish()
        self.rank.progress.tick("finishing", self.position.step)
        self._checkpoints.finish(self._moment())

    def close(self) -> None:
        """Wait, for a limited time, until a checkpoint in progress is written, and stop the threads."""
        for end in self.ends:
            end()
        self._checkpoints.close()
        self.first_epoch.close()

    def _find_kept(self) -> None:
        """Find what the user's code keeps from step to step, so that checkpoints hold it."""
        self.contents.kept = kept = RetainedState({**self.contents.modules, **self.called}, self.registered)
        if kept.unheld:
            self.guarantee = without(kept.unheld)
        kept.tell = lambda names: self.rank.say_guarantee(without(names))
        if kept.names and self.rank.ranks.size > 1:
            self.rank.note(of_each_slot(kept.names))

    # Boundaries

    def _boundary(self, epoch_ends: bool, last: bool, agreed: ControlFlags | None) -> None:
        release, due, flush, _ = agreed or self.agreement(self.requests())
        position = self.position
        ends = position.over or (last and epoch_ends)  # only `finish` is expected to follow
        here = (epoch_ends or self._counts_steps) and self._target.reached(self._units) and not ends
        due = due or self._held or (epoch_ends and self.pace.after_epoch(position.epoch))
        improved = self._tell(self.collect()) if agreed or flush or due or here or release else False
        ready = self.ready() if due or here or improved or release else False
        if release and not ends and not here and ready:
            self._leave(RELEASED)
        if position.step == self.rank.config.until and not ends:
            self.first_epoch.finish()
            self._leave(FINISHED)
        if here:
            self._judgement.must_have_validated(self.position.step)
            self._save(wait=True)
            if not self._target.moves_on(self._units, position.step):
                raise Leave(RELEASED)
        elif improved or due:
            self._held = last or ends or not ready
            if not self._held:
                self._save(wait=False)
        self._tick()

    def requests(self) -> ControlFlags:
        """Return what this rank requests at the end of this step: to give up its slot, to save, to exchange reports."""
        decides, now = self.rank.ranks.rank == 0, time.monotonic()
        due = decides and (self._checkpoints.due or self.pace.checkpoint(self.position.step + self.in_step))
        flush = decides and len(self.reports) > 0 and now - self._told >= QUIET_S
        flush = flush or self.reports.validates or len(self.reports) >= _MANY
        due, self._requested = due or self._requested, False
        return ControlFlags(self.rank.instructions.release, due, flush)

    def agreement(self, mine: ControlFlags) -> ControlFlags:
        """Return the requests of all ranks, exchanged by a message of their own; a flag is set if any rank sets it."""
        if self.rank.ranks.size == 1:
            return mine
        word = torch.tensor([float(each) for each in mine], device=self._word_device)
        return ControlFlags(*(each > 0 for each in self.rank.ranks.allreduce_sum(word, "boundary").tolist()))

    @property
    def _word_device(self) -> torch.device:
        return self.rank.device if self.rank.choice.name == "torch" else torch.device("cpu")

    def _averaged_reports(self) -> list[Report]:
        self._told = time.monotonic()
        mine = self.reports.take()
        ranks = self.rank.ranks
        return merged(ranks.all_gather_object(mine) if ranks.size > 1 else [mine])

    def _tell(self, found: Sequence[Report]) -> bool:
        """Pass reports on to the service, and judge them; return True if one is the best validation so far."""
        for each in found:
            self.rank.spool.say(each)
        for each in found:
            if each.kind == "training":
                self._judgement.training(each.step, each.metrics)
        validations = [each for each in found if each.kind == "validation"]
        if not validations:
            return False
        self.metrics = dict(validations[-1].metrics)
        improved = self._judgement.validation(validations[-1].step, self.metrics)
        self.position.over = self.position.over or self._is_over
        return improved

    @property
    def _is_over(self) -> bool:
        """Return True after `--steps` steps, or after `--patience` validations without improvement.

        The training is then complete.
        """
        steps = self.rank.config.steps
        return self._judgement.stopped or (steps is not None and self.position.step >= steps)

    def _say_validation(self) -> None:
        if self.metrics:
            step, epoch = self.position.step, self.position.epoch_of_curves
            self.rank.spool.say(Report(kind="validation", step=step, epoch=epoch, metrics=self.metrics))

    def _leave(self, code: int) -> None:
        self.rank.progress.tick("finishing", self.position.step)
        self._checkpoints.finish(self._moment())
        raise Leave(code)

    def _save(self, wait: bool) -> None:
        self._held = False
        self.rank.progress.tick("checkpoint", self.position.step)
        if wait:
            self._checkpoints.finish(self._moment())
        else:
            self._checkpoints.save(self._moment())
            if self.eager:
                self._checkpoints.settle()
        self.pace.saved()

    def _moment(self) -> Position:
        position = self.position
        facts = {
            "epoch": position.epoch,
            "fraction": position.fraction,
            "origin": [position.training, position.origin],
            "form": self.form_state(),
            **self._judgement.state(),
            "reports": self.reports.count,
            "first_epoch": self.first_epoch.state(),
        }
        return Position(position.step, position.epoch_of_curves, self.metrics, facts)

    def _tick(self) -> None:
        step = self.position.step
        self.rank.progress.tick("first step" if step == self._began else "step", step + 1)

    @property
    def _counts_steps(self) -> bool:
        return self.rank.config.steps is not None

    @property
    def _units(self) -> int:
        return self.position.step if self._counts_steps else self.position.epoch

    def _average(self, name: str, value: Any) -> None:
        if self.rank.ranks.size == 1:
            return
        if isinstance(value, nn.Module):
            parameters = list(value.parameters())
        elif isinstance(value, torch.optim.Optimizer):
            parameters = [each for group in value.param_groups for each in group["params"]]
        else:
            return
        own = list({id(each): each for each in parameters if id(each) not in self._averaged}.values())
        self._averaged |= {id(each) for each in own}
        if own:
            AveragedGradients(self.rank.ranks, f"gradients.{name}", own, self._weight)

    def _weight(self) -> float:
        if self._samples is None:
            return 1 / self.rank.ranks.size
        own, total = self._samples
        return own / total
