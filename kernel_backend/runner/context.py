"""Hold what every form of training needs of its rank: the job, the loaded definition, the peers, the channels."""

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
    """Job, ranks and functions that a form's training is built from, in one rank."""

    job: LaunchSpec
    loaded: Loaded
    functions: Functions
    ranks: Ranks
    choice: Choice  # of the backend
    device: torch.device
    numerics: Mapping[str, str]  # facts that the bits depend on
    code_id: str
    instructions: Instructions
    spool: Spool
    progress: Progress

    @property
    def config(self) -> Config:
        """Return the configuration of the experiment."""
        return self.job.config

    def note(self, text: str, level: Literal["info", "warning"] = "info") -> None:
        """Send a note to the user; on ranks other than 0 nothing happens."""
        self.spool.say(Note(level=level, text=text))

    def say_guarantee(self, text: str) -> None:
        """Report another reproducibility guarantee than the one of the start."""
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
        """Report that the training begins: backend, number of ranks, its length and reproducibility guarantee."""
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
    """Training of one form in this rank; it is built at step 0, before anything is restored.

    A form is a function of a RankContext that returns one, listed in `runner/rank_process.py`.
    """

    @property
    def step(self) -> int:
        """Return the number of steps taken, for error messages and progress ticks."""

    def train(self) -> int:
        """Restore the resume checkpoint, if any, train to the end or until released, and return the exit code."""

    def close(self) -> None:
        """Stop threads and processes; called after `train`, also if it raised."""
