"""Hold the state of a training in one rank: model, objectives, data, step number and newest validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kernel_backend.model.experiment import Config
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer
from kernel_backend.runner.checkpoint.ema import WeightAverage
from kernel_backend.runner.data import Batches
from kernel_backend.runner.definition.step_files import StepFiles
from kernel_backend.runner.determinism.generators import OwnGenerators
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.first_epoch import FirstEpoch
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.loop.batch_rule import BatchRule
from kernel_backend.runner.loop.cadence import CadenceTimer
from kernel_backend.runner.loop.judgement import Judgement
from kernel_backend.runner.loop.objective import Objective
from kernel_backend.runner.loop.target import Target
from kernel_backend.runner.metrics.whole_set import Metrics
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Ranks
from kernel_backend.runner.ranks.batch_norm import SharedStatistics

if TYPE_CHECKING:
    from kernel_backend.runner.loop.strategy import Strategy


@dataclass
class Training:
    """State of a training in this rank, which the functions of the loop read and change; `step` counts taken steps."""

    config: Config
    model: nn.Module
    objectives: Sequence[Objective]  # in the order in which a step computes and updates them
    average: WeightAverage | None
    logical: LogicalRanks
    statistics: SharedStatistics  # of BatchNorm, with `--sync-bn`
    strategy: Strategy
    loss: Callable[..., Any] | None  # None: training steps compute their losses
    files: StepFiles  # redirection of files that step functions write
    loss_asks: frozenset[str]  # loop values among the arguments of `loss`
    augment: Callable[..., Any] | None  # changes a training batch on the device
    on_epoch: Callable[..., Any] | None  # called on rank 0 after each epoch's validation
    metrics: Metrics | None
    metrics_asks: frozenset[str]  # loop values among the arguments of `metrics`
    rule: BatchRule
    precision: Callable[[], AbstractContextManager[None]]
    train: Batches
    validation: Batches | None
    test: Batches | None  # evaluated with the best weights at the end of the training
    device: torch.device
    ranks: Ranks
    streams: RandomStates | None
    generators: OwnGenerators  # generators held by the model, the functions and the optimizers
    first_epoch: FirstEpoch
    checkpoints: Checkpointer
    pace: CadenceTimer
    progress: Progress
    spool: Spool
    instructions: Instructions
    target: Target
    judgement: Judgement
    step: int = 0
    passes: int = 0  # completed epochs
    current: int = 0  # the epoch of the newest step, from 0
    began: int = 0  # the step at which this attempt began
    ends: bool = False  # the newest step was the last of its epoch
    validated: bool = True  # False until the work after the newest step is done: schedules of an epoch, a validation
    left_out: list[range] = field(default_factory=list)  # skipped steps, with `--on-nan go_back`
    furthest: int = 0  # the furthest step that this attempt has taken
    loss_compared: bool = False  # this attempt has checked whether the validation's loss is a mean over samples
    told_without_loss: bool = False  # this attempt has told why its validations have no loss
    over: bool = False  # all steps have been taken, or it was stopped early
    validation_metrics: dict[str, float] = field(default_factory=dict)  # metrics of the validation at this step

    def draws_for(self, objective: Objective) -> tuple[str, ...]:
        """Return values to mix into the random seeds of an objective (a loss with its optimizers).

        They are the objective's role if a step has several objectives, so that each draws random numbers of its own;
        () if there is only one.
        """
        return (objective.role,) if len(self.objectives) > 1 else ()

    @property
    def loss_function(self) -> Callable[..., Any]:
        """Return the user's `loss`, wrapped so that its file writes are redirected on ranks other than 0."""
        assert self.loss is not None
        return self.files.inside(self.loss)

    @property
    def uses_output(self) -> bool:
        """Return True if a validation must run the model, as `loss`, `metrics` or metric objects need its output."""
        needs = not self.metrics_asks or "output" in self.metrics_asks
        return self.loss is not None or (self.metrics is not None and needs)

    @property
    def total_steps(self) -> int | None:
        """Return the number of steps of the whole training; None as long as the length of the data is unknown."""
        if self.config.steps is not None:
            return self.config.steps
        return None if self.train.per_epoch is None else self.config.epochs * self.train.per_epoch

    @property
    def epochs(self) -> int | None:
        """Return the number of epochs to train; None if the training's length is given in steps."""
        return self.config.epochs if self.config.steps is None else None

    @property
    def units(self) -> int:
        """Return the number of completed epochs, or of completed steps if the training's length is given in steps."""
        return self.passes if self.config.steps is None else self.step

    @property
    def epoch(self) -> float:
        """Return the number of epochs trained so far, with a fraction; 0 if the length of an epoch is unknown."""
        return self.step / self.train.per_epoch if self.train.per_epoch else 0.0
