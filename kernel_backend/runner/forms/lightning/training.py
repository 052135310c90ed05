"""Train a LightningModule in one rank: build it, count its steps, and report, save or stop after each."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.definition.forms.lightning import LIGHTNING
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.reports import Fact, Report
from kernel_backend.model.trial import BEFORE
from kernel_backend.runner.cell_values import save_trained
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer, Position
from kernel_backend.runner.checkpoint.contents import TrainingContents
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer, Schedule, Stateful
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch
from kernel_backend.runner.definition.unregistered_weights import refuse_unregistered
from kernel_backend.runner.determinism import exactness, seeds
from kernel_backend.runner.determinism.digests import weights
from kernel_backend.runner.determinism.generators import OwnGenerators
from kernel_backend.runner.determinism.retained_state import RetainedState, of_each_slot, without
from kernel_backend.runner.external_loop.auxiliary_weights import UnheldOptimizers, auxiliary_of, auxiliary_parts
from kernel_backend.runner.external_loop.parts import part_of
from kernel_backend.runner.first_epoch import FirstEpoch
from kernel_backend.runner.forms.lightning.api import (
    Checkpoint,
    LightningDataModule,
    LightningEnvironment,
    LightningModule,
    Trainer,
)
from kernel_backend.runner.forms.lightning.arguments import NEVER, trainer_arguments
from kernel_backend.runner.forms.lightning.attributes import Attributes
from kernel_backend.runner.forms.lightning.callback import RankCallback
from kernel_backend.runner.forms.lightning.cell import fit_call
from kernel_backend.runner.forms.lightning.curves import Curves
from kernel_backend.runner.forms.lightning.gradients import RankGradients
from kernel_backend.runner.forms.lightning.loaders import (
    Loader,
    TrainingLoader,
    ValidationLoader,
    batches_of,
    made_of,
    padding_of,
)
from kernel_backend.runner.forms.lightning.logger import ReportLogger
from kernel_backend.runner.forms.lightning.loops import Epochs, Steps
from kernel_backend.runner.forms.lightning.metrics import sync_metrics
from kernel_backend.runner.forms.lightning.per_rank import PerRank
from kernel_backend.runner.forms.lightning.progress import TrainedLightning, TrainerState
from kernel_backend.runner.forms.lightning.quiet import be_quiet
from kernel_backend.runner.forms.lightning.results import Results
from kernel_backend.runner.forms.lightning.strategy import RankStrategy
from kernel_backend.runner.gradients.reducer import ControlFlags
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.loop.cadence import CadenceTimer
from kernel_backend.runner.loop.judgement import Judgement
from kernel_backend.runner.loop.objective import named
from kernel_backend.runner.loop.target import Target
from kernel_backend.runner.metrics.sums import share

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


class Released(BaseException):
    """Raised out of Lightning's loops to end a training early and give its slots back."""


class LightningTraining:
    """Training of a LightningModule in this rank."""

    def __init__(self, rank: RankContext) -> None:
        """Build module, data and Trainer; raise InvalidDefinition if the cell defines no valid training."""
        self.rank = rank
        be_quiet()
        call = fit_call(rank)
        self.module: LightningModule = call.model
        if not isinstance(self.module, LightningModule):
            raise InvalidDefinition(
                f"trainer.fit is given a {type(call.model).__name__}, which is no LightningModule of the package that "
                "the cell imports"
            )
        self._call = call
        self._scratch = tempfile.TemporaryDirectory(prefix="lightning-", ignore_cleanup_errors=True)
        size = rank.ranks.size
        self._mine, self._count = range(rank.ranks.rank, rank.ranks.rank + 1), size
        self.strategy = RankStrategy(self)
        given = dict(call.trainer.arguments)
        callbacks = given.pop("callbacks", None) or []
        self._callbacks = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
        self.trainer: Any = self._made(given)
        self.gradients = RankGradients(self.module, rank.ranks)
        self.generators = OwnGenerators(module=self.module)
        self.results = Results(True, self._own_samples, lambda: size > 1)
        self._wire()
        self.step = 0  # number of batches trained
        self._judgement = Judgement(rank.config, rank.note, LIGHTNING.way_of(rank.config.metric))
        self.over = False
        self._loaders: dict[int, Loader] = {}
        self._batch: Batch | None = None  # the batch that Lightning is processing
        self._trained: Batch | None = None  # the newest training batch
        self._validating_whole = size > 1 and self._collects()
        self._flags: ControlFlags | None = None
        self._agreed = ControlFlags()
        self._curves = Curves(rank)
        self._loss: Tensor | float | None = None
        self._validation_metrics: dict[str, float] = {}
        self._seen: dict[str, float] = {}  # metrics of the newest validation
        self._resumed: str | None = None
        self.checkpoints: Checkpointer | None = None
        self._unheld: UnheldOptimizers | None = None
        self.first_epoch = FirstEpoch(rank.job, rank.ranks, rank.spool, rank.code_id, self.validates)
        self.target = Target(rank.job.until, rank.ranks, rank.instructions, rank.progress)

    # Passed to Lightning

    def _made(self, given: Mapping[str, Any]) -> Trainer:
        config = self.rank.config
        arguments = trainer_arguments(given, config, self.module.automatic_optimization)
        keeps = any(isinstance(each, Checkpoint) for each in self._callbacks)
        trainer = Trainer(
            **arguments,
            accelerator="gpu" if self.rank.device.type == "cuda" else "cpu",
            strategy=self.strategy,
            callbacks=[RankCallback(self.agree, self.validated), *self._callbacks],
            enable_checkpointing=keeps,
            default_root_dir=self._scratch.name,
            plugins=[LightningEnvironment()],
        )
        trainer.loggers = [ReportLogger(self._take_logged, self.rank.note)]
        trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        return trainer

    def _wire(self) -> None:
        trainer = self.trainer
        before = trainer.fit_loop
        steps = Steps(self, before.epoch_loop.min_steps, before.epoch_loop.max_steps)
        trainer.fit_loop = Epochs(self, steps, before.min_epochs, before.max_epochs)
        steps._results = self.results
        steps.val_loop._results = Results(
            False, self._own_samples, lambda: self._count > 1 and not self._validating_whole
        )

    @property
    def validates(self) -> bool:
        """Return True if the module has a validation step."""
        return _overrides(self.module, "validation_step")

    @property
    def syncs(self) -> bool:
        """Return True while each rank processes only its own share of the samples."""
        return self._count > 1 and not (self.trainer.validating and self._validating_whole)

    def _collects(self) -> bool:
        """Return True if the module has `on_validation_epoch_end`, which may use the outputs of all samples.

        Then each rank validates all samples, instead of its own share only.
        """
        return _overrides(self.module, "on_validation_epoch_end")

    def loader(self, loader: Any) -> Loader:
        """Return a loader of this rank's shares, to be used in place of a user's DataLoader."""
        training = self.trainer.state.stage == "train"
        if isinstance(loader, Loader):
            return loader
        if id(loader) in self._loaders:
            return self._loaders[id(loader)]
        role = "train_dataloader" if training else "val_dataloader"
        data = made_of(loader, role, training)
        whole = not training and self._validating_whole
        mine, count = (range(1), 1) if whole else (self._mine, self._count)
        batches = batches_of(self.rank, data, mine, count, training)
        if training and any(isinstance(each, _BATCH_NORM) for each in self.module.modules()):
            batches.keep_pairs()
        padding: list[Any] = []

        def padded() -> Any:
            if not padding:
                padding.append(padding_of(data, self.rank.config.seed))
            return padding[0]

        made = (
            TrainingLoader(batches, padded, self._take, self._place)
            if training
            else ValidationLoader(batches, padded, self._take_validation)
        )
        self._loaders[id(loader)] = made
        self._kept_alive = [*getattr(self, "_kept_alive", []), loader]
        return made

    def is_scratch(self, path: str) -> bool:
        """Return True if `path` is in the temporary folder that Lightning has as its default.

        The user has not chosen such a path, so that a checkpoint there need not be written.
        """
        return Path(path).resolve().is_relative_to(Path(self._scratch.name).resolve())

    # The training

    def train(self) -> int:
        """Train to the end, or until the slots must be given back; return the exit code."""
        call = self._call
        data: dict[str, Any] = {"datamodule": call.datamodule} if call.datamodule is not None else {}
        if call.train_dataloaders is not None:
            data = {"train_dataloaders": call.train_dataloaders, "val_dataloaders": call.val_dataloaders}
        sync_metrics(self.module, self.rank.ranks, lambda: self.syncs)
        try:
            self.trainer.fit(self.module, **data)
        except Released:
            return RELEASED
        except AlreadyOver:  # killed between its last checkpoint and its exit
            pass
        self._save_values()
        return FINISHED

    def _save_values(self) -> None:
        trained = (self.module, self._call.datamodule, *self._callbacks)
        state = TrainedLightning(self.module, TrainerState(self.trainer).state_dict())
        save_trained(self.rank, trained, self._call.trainer, state)

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop threads and loader workers."""
        if self.checkpoints is not None:
            self.checkpoints.close()
        if self._unheld is not None:
            self._unheld.close()
        self.first_epoch.close()
        for each in self._loaders.values():
            each.batches.close()
        self._scratch.cleanup()

    def begin(self) -> None:
        """Restore the checkpoint to resume from; without one, copy rank 0's initial state to all ranks.

        It is called before Lightning's start hooks.
        """
        trainer, rank, config = self.trainer, self.rank, self.rank.config
        per_epoch = trainer.num_training_batches
        self.per_epoch = None if math.isinf(per_epoch) else int(per_epoch)
        if config.search is not None and not self.trainer.enable_validation:
            raise InvalidDefinition("a search compares validations: write a validation_step and a val_dataloader")
        refuse_unregistered(self.module, trainer.optimizers)
        self.logical = LogicalRanks(self.module, self._mine, self._count)
        self.attributes = Attributes(self._owners(), _ignored())
        self.attributes.begin()
        self.kept = RetainedState(
            {"module": self.module, "callbacks": self._callbacks, "datamodule": trainer.datamodule}
        )
        self.state, self.per_rank = TrainerState(trainer), PerRank(trainer, self.results, self.attributes, self.kept)
        optimizers = {str(place): each for place, each in enumerate(trainer.optimizers)}
        schedules = {str(place): each.scheduler for place, each in enumerate(trainer.lr_scheduler_configs)}
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        stateful: dict[str, Stateful] = {"model": Model(self.module)}
        stateful |= {_part("optimizer", name, optimizers): Optimizer(each) for name, each in optimizers.items()}
        stateful |= {_part("schedule", name, schedules): Schedule(each) for name, each in schedules.items()}
        stateful |= {"scaler": scaler} if scaler is not None else {}
        stateful |= {"trainer": self.state}
        beside = self._beside([*optimizers.values(), *schedules.values()])
        stateful |= {name: part_of(name, each) for name, each in beside.items()}
        unseen = exactness.writes_unseen(self.module, optimizers.values(), [Path(rank.job.code), Path(rank.job.cwd)])
        self.checkpoints = Checkpointer(
            rank.job,
            rank.ranks,
            rank.spool,
            open_storage(rank.job.checkpoints, rank.job.uid),
            TrainingContents(
                stateful, self.logical, self.per_rank, rank.ranks, config.seed, config.weights_from is not None
            ),
            rank.numerics,
            HostCopy(rank.device),
            eager=unseen or self._clamps() or bool(beside),
        )
        checkpoints = self.checkpoints
        self.pace = CadenceTimer(
            self.per_epoch, config.checkpoint_every, lambda: checkpoints.cost, lambda: checkpoints.busy
        )
        self._restore()
        rank.say_started(
            steps_per_epoch=self.per_epoch,
            total_steps=self.total_steps,
            parameters=sum(each.numel() for each in self.module.parameters()),
            guarantee=self._guarantee(),
            resumed_from=self._resumed,
        )
        self.kept.tell = lambda names: rank.say_guarantee(without(names))
        if self.kept.names and rank.ranks.size > 1:
            rank.note(of_each_slot(self.kept.names))

    def _beside(self, held: list[Any]) -> dict[str, Any]:
        """Return what module and callbacks train beside what is `held`, as values of checkpoint parts."""
        trainer, rank = self.trainer, self.rank
        known = [self.module, *self.attributes.modules().values(), *held]
        found = auxiliary_of(
            {"module": self.module, "callbacks": self._callbacks},
            known,
            [trainer, trainer.strategy, trainer.datamodule],
        )
        optimizers = [name for name, each in found.steppers.items() if isinstance(each, torch.optim.Optimizer)]
        if optimizers and rank.ranks.size > 1:
            rank.limit_guarantee(
                f"not reproducible: {', '.join(optimizers)}: each slot trains for itself, and a restart gives all what "
                "slot 0 had: return it by configure_optimizers(), with its weights in the module"
            )
        self._unheld = UnheldOptimizers(rank, [*held, *found.steppers.values()], lambda: trainer.global_step)
        return auxiliary_parts(found, self.module, rank.job)

    def _restore(self) -> None:
        rank, checkpoints = self.rank, self.checkpoints
        assert checkpoints is not None
        schedules = [each.scheduler for each in self.trainer.lr_scheduler_configs]
        knowing = any(hasattr(each, "total_steps") or hasattr(each, "T_max") for each in schedules)
        manifest = checkpoints.restore(knowing)
        if manifest is None:
            share(list(self.module.parameters()), rank.ranks)
            self.logical.share(rank.ranks)
            if rank.ranks.rank == 0:
                rank.spool.say(Fact(name="weights", value=weights(self.module, {}).to_json()))
            return
        self._resumed = manifest.id
        facts = manifest.state["training"]
        self.step = manifest.step
        self._judgement.restore(facts, of_another=manifest.attempt == BEFORE)
        total = self.total_steps
        goes_on = facts["length"] != [rank.config.epochs, rank.config.steps]  # trains for another length than before
        self.over = facts["over"] and (not goes_on or (total is not None and self.step >= total))
        if goes_on:
            self.state.go_on()
        self._validation_metrics = dict(manifest.metrics)
        self.first_epoch.restore(facts["first_epoch"])
        if changed := exactness.differences(manifest.numerics, rank.numerics):
            rank.note(f"bits may differ from step {manifest.step + 1} on: {changed}", "warning")
        self.state.apply()
        self.per_rank.apply()

    def begun(self) -> None:
        """Restore once more what Lightning's start hooks have changed since `begin`.

        Raises AlreadyOver if no step is left to train. Raises Released if the trial has reached the length at which its
        search compares it (its target), and the search sets no further one.
        """
        self.state.apply()
        self.per_rank.apply()
        if self.over:
            raise AlreadyOver
        if self._resumed and self.target.reached(self.units):
            self._flush()
            if not self.target.moves_on(self.units, self.step):
                raise Released

    @property
    def resumes_within_epoch(self) -> bool:
        """Return True at the start of an epoch in which earlier attempts have trained some steps."""
        return self.per_rank.within_epoch

    def resumed_within_epoch(self) -> None:
        """Record that the partly trained epoch is being continued."""
        self.per_rank.within_epoch = False

    @property
    def total_steps(self) -> int | None:
        """Return the number of steps of the whole training; None if it is not known."""
        config = self.rank.config
        if config.steps is not None:
            return config.steps
        return None if self.per_epoch is None else config.epochs * self.per_epoch

    @property
    def epochs(self) -> int:
        """Return the number of completed epochs."""
        return int(self.trainer.fit_loop.epoch_progress.current.processed)

    @property
    def units(self) -> int:
        """Return the number of completed epochs, or of steps if the training's length is given in steps."""
        return self.epochs if self.rank.config.steps is None else self.step

    @property
    def epoch(self) -> float:
        """Return the number of epochs trained so far, with a fraction if the number of steps per epoch is known."""
        return self.step / self.per_epoch if self.per_epoch else float(self.epochs)

    # A step

    def _place(self) -> tuple[int, int]:
        loop = self.trainer.fit_loop
        combined = loop._combined_loader
        if combined is not None and len(combined.flattened) > 1:
            raise InvalidDefinition(
                f"train_dataloader() returned {len(combined.flattened)} loaders, which Lightning reads side by side: a "
                "place in all of them is not kept here. Return one DataLoader, of a dataset that has samples of each"
            )
        return int(loop.epoch_progress.current.processed), int(loop.epoch_loop.batch_progress.current.ready)

    def _take(self, share: Batch) -> None:
        self._batch = self._trained = share
        self.rank.progress.tick("step" if self.step else "first step", self.step + 1)
        self._flags, self._loss = None, None
        self._reseed("step", self.step, self.rank.ranks.rank)
        self.gradients.begin_step(first=self.trainer.fit_loop.epoch_loop.batch_progress.current.ready == 0)

    def _take_validation(self, share: Batch) -> None:
        self._batch = share
        self.rank.progress.tick("validation", self.step)
        number = self.trainer.fit_loop.epoch_loop.val_loop.batch_progress.current.ready
        rank = 0 if self._validating_whole else self.rank.ranks.rank
        self._reseed("validation", self.step, number, rank)

    def _reseed(self, *where: int | str) -> None:
        value = seeds.mix(self.rank.config.seed, *where)
        seeds.reseed(value)
        self.generators.seed(value)

    def _own_samples(self) -> int:
        return 1 if self._batch is None else self._batch.samples

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Undo what the `with` block changes in attributes and metrics, if this rank's share of the batch is empty.

        Such a rank computes on other data, only so that all ranks take part in the step.
        """
        if self._own_samples():
            yield
            return
        attributes, kept = self.attributes.state_dict(), self.kept.state_dict()
        yield
        self.attributes.put(attributes)
        self.kept.load_state_dict(kept)

    def sum_gradients(self, loss: Tensor, scaled: Tensor, compute: Callable[[Tensor], None]) -> None:
        """Run `compute`, which computes this rank's gradients from `scaled`, and sum them over all ranks.

        `loss` is this rank's loss, and `scaled` the loss to differentiate, which Lightning may have scaled.
        """
        batch = self._batch
        assert batch is not None
        if self._count == 1:
            compute(scaled)
            self._loss = loss.detach()
            return
        flags = self._own_flags()
        word, self._loss = self.gradients.add(loss, scaled, batch, flags, compute)
        self._flags = word

    def before_update(self) -> None:
        """Wait until the tensors for a checkpoint are copied, as the weights change next.

        With several ranks, also seed the random generators of all ranks equally for the update.
        """
        assert self.checkpoints is not None
        self.checkpoints.settle()
        if self._count > 1:
            seeds.reseed(seeds.mix(self.rank.config.seed, "update", self.step))

    def _own_flags(self) -> ControlFlags:
        assert self.checkpoints is not None
        decides = self.rank.ranks.rank == 0
        return ControlFlags(
            release=self.rank.instructions.release,
            checkpoint=decides and (self.checkpoints.due or self.pace.checkpoint(self.step + 1)),
            report=decides and self.pace.report(self.step + 1),
        )

    def agree(self) -> None:
        """Exchange the ranks' requests to report, to save or to exit, after a step, so that all ranks do the same.

        The requests are sent with the gradients where that is possible, else separately.
        """
        if self._count == 1:
            self._agreed = self._own_flags()
        elif self._flags is not None:
            self._agreed = self._flags
        else:
            own = torch.tensor([float(each) for each in self._own_flags()], device=self.rank.device)
            found = self.rank.ranks.allreduce_sum(own, "flags")
            self._agreed = ControlFlags(*(bool(each > 0) for each in found))
        self.trainer.log_every_n_steps = 1 if self._agreed.report else NEVER

    def end_step(self) -> None:
        """Count a completed step. A validation that ran within the step is reported with its number."""
        self.step += 1
        assert self._trained is not None
        self.first_epoch.take([self._trained])
        self._validation_metrics, self._seen = self._seen, {}

    # Logged values

    def _take_logged(self, metrics: Mapping[str, float]) -> None:
        trainer = self.trainer
        if trainer.validating:
            self._curves.take("validation", metrics)
            return
        ended = trainer._logger_connector._first_loop_iter is None
        self._curves.take("epoch" if ended else "step", metrics, {} if ended else self.results.reductions())

    def begin_validation(self) -> None:
        """Copy rank 0's buffers to all ranks for a validation."""
        self.logical.share(self.rank.ranks)
        self.rank.progress.tick("validation", self.step)

    def validated(self) -> None:
        """Keep the metrics of a validation until the step in which it ran has been counted."""
        self._seen = self.rank.config.metric.spelled(self._curves.given("validation"))
        self.first_epoch.validated()

    def _flush(self) -> None:
        """Report the values that the module has logged since the last report, and a validation of this step."""
        samples = self._trained.samples if self._trained is not None else 0
        loss = self._loss if self.module.automatic_optimization else None
        values = self._curves.report(self.step, self.epoch, loss, samples, due=self._agreed.report)
        self._judgement.training(self.step, values)
        if self._validation_metrics:
            metrics = self._validation_metrics
            self.rank.spool.say(Report(kind="validation", step=self.step, epoch=self.epoch, metrics=metrics))

    # The boundary

    def boundary(self, ends: bool) -> None:
        """Report, save or end the training after a step, as the ranks agree; `ends` marks the last step of an epoch.

        All ranks call it.
        """
        assert self.checkpoints is not None
        self._flush()
        improved = self._improved()
        if self.step == self.rank.config.steps:
            self.trainer.should_stop = True
            return
        at_target = self.target.reached(self.units) and (ends or self.rank.config.steps is not None)
        if at_target or self._agreed.release:
            self.rank.progress.tick("checkpoint" if at_target else "finishing", self.step)
            self.checkpoints.finish(self._moment())
            self.pace.saved()
            if self._agreed.release or not self.target.moves_on(self.units, self.step):
                raise Released
        elif improved or self._agreed.checkpoint or (ends and self.pace.after_epoch(self.epochs)):
            self.rank.progress.tick("checkpoint", self.step)
            self.checkpoints.save(self._moment())
            self.pace.saved()

    def _improved(self) -> bool:
        """Evaluate the validation at this step, if there was one; return True if its metric is the best so far."""
        metrics = self._validation_metrics
        return bool(metrics) and self._judgement.validation(self.step, metrics)

    def _moment(self) -> Position:
        facts = {**self._judgement.state(), "over": self.over, "first_epoch": self.first_epoch.state()}
        return Position(self.step, self.epoch, self._validation_metrics, facts)

    def finish(self) -> None:
        """Report the last values and commit the final checkpoint."""
        assert self.checkpoints is not None
        self._flush()
        self._improved()
        self._judgement.end([self.module])
        total = self.total_steps
        if total is not None and self.step < total and self.rank.config.steps is None:
            self.rank.note(self._stopped_early())
        self.over = True
        self.first_epoch.finish()
        self.rank.progress.tick("finishing", self.step)
        self.checkpoints.finish(self._moment())

    def _stopped_early(self) -> str:
        stoppers = [each for each in self._callbacks if type(each).__name__ == "EarlyStopping"]
        who = f"EarlyStopping({stoppers[0].monitor})" if stoppers else "a callback"
        return f"{who} ended the training after epoch {self.epochs} of {self.rank.config.epochs}"

    # Helpers

    def _owners(self) -> dict[str, Any]:
        found: dict[str, Any] = {"module": self.module}
        if self.trainer.datamodule is not None:
            found["datamodule"] = self.trainer.datamodule
        callbacks = [each for each in self.trainer.callbacks if not isinstance(each, RankCallback | Checkpoint)]
        return found | {f"callback {place} {type(each).__name__}": each for place, each in enumerate(callbacks)}

    def _clamps(self) -> bool:
        """Return True if the user's code may change weights after a step, outside of the optimizer's update.

        Then tensors must be copied for a checkpoint before the training goes on.
        """
        return _overrides(self.module, "on_train_batch_end") or not self.module.automatic_optimization

    def _guarantee(self) -> str:
        config, ranks = self.rank.config, self.rank.ranks
        if self.kept.unheld:
            return without(self.kept.unheld)
        if unheld := [each for name, each in self.attributes.unheld.items() if name not in self.kept.attributes]:
            return f"not reproducible: {unheld[0]}, which a checkpoint cannot hold"
        return exactness.guarantee(config, ranks.size, self.rank.device, False, self.generators.ways)


class AlreadyOver(BaseException):
    """Raised if the restored training has already ended, so that no step is left to train."""


def _part(kind: str, name: str, several: Mapping[str, Any]) -> str:
    return named(kind, name if len(several) > 1 else "")


def _overrides(module: LightningModule, name: str) -> bool:
    return getattr(type(module), name, None) is not getattr(LightningModule, name)


def _ignored() -> dict[str, frozenset[str]]:
    """Return names of attributes that Lightning gives to every module and every data module, and that are not saved.

    The keys `module` and `datamodule` each have a set of names.
    """
    found = {"module": frozenset(vars(LightningModule())) | {"training"}}
    found["datamodule"] = frozenset(vars(LightningDataModule())) | {"trainer"}
    return found
