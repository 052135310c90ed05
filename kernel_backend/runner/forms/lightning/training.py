"""Train a LightningModule in one rank: build it, count its steps, and report, save or stop after each."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import FINISHED
from kernel_backend.model.reports import Report
from kernel_backend.runner.cell_values import save_trained
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch
from kernel_backend.runner.definition.unregistered_weights import refuse_unregistered
from kernel_backend.runner.determinism import exactness, seeds
from kernel_backend.runner.determinism.generators import OwnGenerators
from kernel_backend.runner.determinism.retained_state import RetainedState
from kernel_backend.runner.external_loop.auxiliary_weights import hold_auxiliary
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.training import ExternalTraining
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
from kernel_backend.runner.loop.objective import named
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.timing.clock import CLOCK

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


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
        self._session: ExternalTraining | None = None  # from `begin` on
        self._loaders: dict[int, Loader] = {}
        self._batch: Batch | None = None  # the batch that Lightning is processing
        self._trained: Batch | None = None  # the newest training batch
        self._validating_whole = size > 1 and self._collects()
        self._flags: ControlFlags | None = None
        self._agreed = ControlFlags()
        self._curves = Curves(rank.ranks, rank.config.metric)
        self._loss: Tensor | float | None = None

    # Passed to Lightning

    def _made(self, given: Mapping[str, Any]) -> Trainer:
        config = self.rank.config
        arguments = trainer_arguments(given, config, self.module.automatic_optimization)
        keeps = any(isinstance(each, Checkpoint) for each in self._callbacks)
        trainer = Trainer(
            **arguments,
            accelerator="gpu" if self.rank.device.type == "cuda" else "cpu",
            strategy=self.strategy,
            callbacks=[RankCallback(self.agree, lambda: self.session.first_epoch.validated()), *self._callbacks],
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
    def session(self) -> ExternalTraining:
        """Return the training's checkpoints, reports and agreement of the ranks, once the training has begun."""
        assert self._session is not None
        return self._session

    @property
    def step(self) -> int:
        """Return the number of batches trained."""
        return 0 if self._session is None else self._session.position.step

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
        except Leave as leave:
            if not self.session.position.over:
                return leave.code
        self._save_values()
        return FINISHED

    def _save_values(self) -> None:
        trained = (self.module, self._call.datamodule, *self._callbacks)
        state = TrainedLightning(self.module, TrainerState(self.trainer).state_dict())
        save_trained(self.rank, trained, self._call.trainer, state)

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop threads and loader workers."""
        if self._session is not None:
            self._session.close()
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
        if config.search_needs_validations and not self.trainer.enable_validation:
            raise InvalidDefinition("a search compares validations: write a validation_step and a val_dataloader")
        refuse_unregistered(self.module, trainer.optimizers)
        self.attributes = Attributes(self._owners(), _ignored())
        self.state = TrainerState(trainer)
        schedules = [each.scheduler for each in trainer.lr_scheduler_configs]
        session = self._session = ExternalTraining(
            rank,
            "lightning",
            own=PerRank(trainer, self.results, self.attributes),
            steps_per_epoch=self.per_epoch,
            validates=_overrides(self.module, "validation_step"),
            schedules_know_length=any(hasattr(each, "total_steps") or hasattr(each, "T_max") for each in schedules),
        )
        CLOCK.between = "stall"  # what the user's steps compute is measured apart from Lightning's loop
        session.collect, session.form_state = self._reports, self._form_state
        self._register(schedules)
        self._find_end()
        self.state.apply()
        session.expected_steps = self.total_steps
        session.guarantee = exactness.guarantee(config, rank.ranks.size, rank.device, False, self.generators.ways)
        session.begin()
        unheld = [each for name, each in self.attributes.unheld.items() if name not in self._kept.attributes]
        if unheld and not self._kept.unheld:
            rank.say_guarantee(f"not reproducible: {unheld[0]}, which a checkpoint cannot hold")

    def _register(self, schedules: list[Any]) -> None:
        """Make part of the checkpoints what Lightning and the user's code train: each is restored at once."""
        trainer, rank, session = self.trainer, self.rank, self.session
        register = partial(session.register, average=False)  # `gradients` averages those of the module
        register("model", self.module)
        for kind, several in (("optimizer", trainer.optimizers), ("schedule", schedules)):
            for place, each in enumerate(several):
                register(named(kind, str(place) if len(several) > 1 else ""), each)
        if (scaler := getattr(trainer.precision_plugin, "scaler", None)) is not None:
            register("scaler", scaler)
        register("trainer", self.state)
        session.called = {"module": self.module, "callbacks": self._callbacks, "datamodule": trainer.datamodule}
        apart = [trainer, trainer.strategy, trainer.datamodule]
        beside = hold_auxiliary(session, register, apart, self.attributes.modules().values())
        optimizers = [name for name, each in beside.steppers.items() if isinstance(each, torch.optim.Optimizer)]
        if optimizers and rank.ranks.size > 1:
            rank.limit_guarantee(
                f"not reproducible: {', '.join(optimizers)}: each slot trains for itself, and a restart gives all what "
                "slot 0 had: return it by configure_optimizers(), with its weights in the module"
            )
        users = [Path(rank.job.code), Path(rank.job.cwd)]
        unseen = exactness.writes_unseen(self.module, trainer.optimizers, users)
        session.eager = unseen or self._clamps() or any(beside)

    def _form_state(self) -> dict[str, Any]:
        return {"length": [self.rank.config.epochs, self.rank.config.steps], "over": self.session.position.over}

    def _find_end(self) -> None:
        """Find whether the restored training had ended already, unless it is now to be trained for another length."""
        position, total = self.session.position, self.total_steps
        saved = position.form
        goes_on = bool(saved) and saved["length"] != self._form_state()["length"]
        if saved.get("over") and (not goes_on or (total is not None and self.step >= total)):
            position.over = True
        if goes_on:
            self.state.go_on()

    def begun(self) -> None:
        """Restore once more what Lightning's start hooks have changed since `begin`; raise Leave if no step is left."""
        self.state.apply()
        if self.session.resumed_from is not None:
            self.session.contents.restore_own()
        if self.session.position.over:
            raise Leave(FINISHED)

    @property
    def resumes_within_epoch(self) -> bool:
        """Return True at the start of an epoch in which earlier attempts have trained some steps."""
        return self.state.within_epoch

    def resumed_within_epoch(self) -> None:
        """Record that the partly trained epoch is being continued."""
        self.state.within_epoch = False

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
        self.session.begin_step()
        self._flags, self._loss = None, None
        self._reseed("step", self.step, self.rank.ranks.rank)
        self.gradients.begin_step(first=self.trainer.fit_loop.epoch_loop.batch_progress.current.ready == 0)

    def _take_validation(self, share: Batch) -> None:
        self._batch = share
        self.session.tick_validation()
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
        attributes, kept = self.attributes.state_dict(), self._kept.state_dict()
        yield
        self.attributes.put(attributes)
        self._kept.load_state_dict(kept)

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
        self.session.settle()
        if self._count > 1:
            seeds.reseed(seeds.mix(self.rank.config.seed, "update", self.step))

    def _own_flags(self) -> ControlFlags:
        due = self.rank.ranks.rank == 0 and self.session.pace.report(self.step + 1)
        return self.session.requests()._replace(report=due)

    def agree(self) -> None:
        """Exchange the ranks' requests to report, to save or to exit, after a step, so that all ranks do the same.

        The requests are sent with the gradients where that is possible, else separately.
        """
        self._agreed = self._flags or self.session.agreement(self._own_flags())
        self.trainer.log_every_n_steps = 1 if self._agreed.report else NEVER

    def end_step(self, last: bool) -> None:
        """Count a completed step; unless it is the `last` of its epoch, report, save or leave as the ranks agree."""
        assert self._trained is not None
        session, position = self.session, self.session.position
        session.take(self._trained)
        if last:
            session.abandon_step()
            return
        if self.per_epoch:
            position.fraction = (position.step + 1) / self.per_epoch - position.epoch
        session.end_step(agreed=self._agreed)
        self.trainer.should_stop = self.trainer.should_stop or position.over

    def end_epoch(self) -> None:
        """Report, save or leave after an epoch, unless it is the last of all, as the ranks agree."""
        self.session.end_epoch(agreed=self._agreed)
        self.trainer.should_stop = self.trainer.should_stop or self.session.position.over

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
        share(list(self.module.buffers()), self.rank.ranks)
        self.session.tick_validation()

    def _reports(self) -> list[Report]:
        """Return the values that the module has logged since the last report, and those of a validation."""
        samples = self._trained.samples if self._trained is not None else 0
        loss = self._loss if self.module.automatic_optimization else None
        return list(self._curves.reports(self.step, self.epoch, loss, samples, due=self._agreed.report))

    def finish(self) -> None:
        """Report the last values and commit the final checkpoint."""
        total, position = self.total_steps, self.session.position
        if total is not None and self.step < total and self.rank.config.steps is None:
            self.rank.note(self._stopped_early())
        position.epoch, position.fraction = self.epochs, self.epoch - self.epochs
        self.session.finish()

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

    @property
    def _kept(self) -> RetainedState:
        assert self.session.contents.kept is not None
        return self.session.contents.kept


def _overrides(module: LightningModule, name: str) -> bool:
    return getattr(type(module), name, None) is not getattr(LightningModule, name)


def _ignored() -> dict[str, frozenset[str]]:
    """Return names of attributes that Lightning gives to every module and every data module, and that are not saved.

    The keys `module` and `datamodule` each have a set of names.
    """
    found = {"module": frozenset(vars(LightningModule())) | {"training"}}
    found["datamodule"] = frozenset(vars(LightningDataModule())) | {"trainer"}
    return found
