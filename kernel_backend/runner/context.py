"""Hold the objects that every kind of training needs in a rank: launch spec, definition, process group, messages."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch

from kernel_backend.definition.form import TrainingForm
from kernel_backend.model.experiment import Config
from kernel_backend.model.facts import LoaderSetting
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Fact, Guarantee, Note, Started
from kernel_backend.runner.data.auto_workers import PATIENCE_S, AutoWorkers
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Choice, Ranks


@dataclass(frozen=True)
class RankContext:
    """Objects from which a rank builds its training: launch spec, user functions, process group, device.

    Every form of training (functions, plain cell, Lightning, Keras ...) is built from one RankContext.
    """

    job: LaunchSpec
    loaded: Loaded
    functions: Functions
    ranks: Ranks
    choice: Choice  # of the backend
    device: torch.device
    numerics: Mapping[str, str]  # facts that bit-exact results depend on
    code_id: str
    instructions: Instructions
    spool: Spool
    progress: Progress
    limits: dict[str, None] = field(default_factory=dict)  # why the result is not known to be exact

    @property
    def config(self) -> Config:
        """Return the configuration of the experiment."""
        return self.job.config

    @property
    def loader_workers(self) -> int | AutoWorkers:
        """Return the number of loader processes set by `--loader-workers`.

        With `--loader-workers auto`, return the settings for tuning that number during the training.
        """
        config = self.config
        if config.loader_workers is not None:
            return config.loader_workers
        return AutoWorkers(
            begin=self.job.loader,
            cores=config.threads or 1,
            ranks=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            patience=min(PATIENCE_S, config.hang_timeout / 2),
            note=self.note,
            chosen=self._chose,
        )

    def _chose(self, setting: LoaderSetting) -> None:
        self.spool.say(Fact(name="loader", value=setting.to_json()))

    def note(self, text: str, level: Literal["info", "warning"] = "info") -> None:
        """Send the user a note; on ranks other than 0 nothing is sent, so that each note appears once."""
        self.spool.say(Note(level=level, text=text))

    def say_guarantee(self, text: str) -> None:
        """Report to the user under which changes, such as kills, the training's result stays bit-identical.

        The text replaces the guarantee that `say_started` reported.
        """
        self.spool.say(Guarantee(text=next(iter(self.limits), text)))

    def limit_guarantee(self, text: str) -> None:
        """Report why the training's result is not known to be exact, now and in place of any guarantee from here on.

        The first reason counts.
        """
        self.limits[text] = None
        self.say_guarantee(text)

    def say_started(
        self,
        *,
        steps_per_epoch: int | None,
        total_steps: int | None,
        parameters: int,
        guarantee: str,
        resumed_from: str | None,
    ) -> None:
        """Report the start of the training: backend, number of ranks, length in steps, reproducibility guarantee."""
        alone = self.ranks.size == 1
        reason = self.choice.reason
        self.spool.say(
            Started(
                backend=self.choice.name,
                reason=f"{reason}; one slot communicates with no other" if alone else reason,
                world=self.ranks.size,
                steps_per_epoch=steps_per_epoch,
                total_steps=total_steps,
                parameters=parameters,
                guarantee=next(iter(self.limits), guarantee),
                resumed_from=resumed_from,
                runtime=dict(self.numerics) | exactness.libraries(self.device, self.choice.name),
            )
        )


class FormTraining(Protocol):
    """Training in this rank, for one form of the user's code, such as functions, a plain cell, Lightning or Keras.

    A new FormTraining is at step 0, and has restored no checkpoint. The record of its form, `TrainingForm.training`,
    names its class, which is created from a RankContext.
    """

    @property
    def step(self) -> int:
        """Return the number of training steps taken so far, for error messages and heartbeats."""

    def train(self) -> int:
        """Restore the resume checkpoint, if any, and train; return the exit code: 0 at the end, 85 when released.

        A training is released if its slots are needed: it commits a checkpoint and ends.
        """

    def close(self) -> None:
        """Stop threads and processes; called after `train`, even if `train` raised."""


def training_of(form: TrainingForm, rank: RankContext) -> Any:
    """Create the FormTraining of a form; its module is imported here, so that only jobs that need a framework do."""
    module, _, name = form.training.partition(":")
    return getattr(importlib.import_module(module), name)(rank)
