"""Hold what every form of training needs in a rank: launch spec, loaded definition, peers and message channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Guarantee, Note, Started
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Choice, Ranks


@dataclass(frozen=True)
class RankContext:
    """Everything in one rank that a training is built from: launch spec, user functions, process group, device."""

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

    @property
    def config(self) -> Config:
        """Return the configuration of the experiment."""
        return self.job.config

    def note(self, text: str, level: Literal["info", "warning"] = "info") -> None:
        """Send a note to the user; only rank 0 writes notes, so that other ranks send nothing."""
        self.spool.say(Note(level=level, text=text))

    def say_guarantee(self, text: str) -> None:
        """Report a reproducibility guarantee, which replaces the one reported at the training's start."""
        self.spool.say(Guarantee(text=text))

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
                guarantee=guarantee,
                resumed_from=resumed_from,
                runtime=dict(self.numerics) | exactness.libraries(self.device, self.choice.name),
            )
        )


class FormTraining(Protocol):
    """Training of one form (such as functions, a plain cell, Lightning or Keras) in this rank.

    It is built at step 0, before anything is restored. For each form a function of a RankContext returns one; these
    functions are listed in `runner/rank_process.py`.
    """

    @property
    def step(self) -> int:
        """Return the number of steps taken, for error messages and heartbeats."""

    def train(self) -> int:
        """Restore the resume checkpoint, if any, train to the end or until released, and return the exit code."""

    def close(self) -> None:
        """Stop threads and processes; called after `train`, even if `train` raised."""
