"""Train by calling the user's function `train(run, ...)`, which has a loop of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import FunctionType

from torch import nn

from kernel_backend.artifacts.run import run
from kernel_backend.definition.loop_form import TRAIN
from kernel_backend.model.launch.exit_codes import FINISHED
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.loop_variables import carried_variables
from kernel_backend.runner.external_loop.registration import RegistrationCheck
from kernel_backend.runner.external_loop.run_methods import RunMethods
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.external_loop.user_loop import LoopSettings
from kernel_backend.runner.forked_children import children_end_here
from kernel_backend.runner.process_end import ending_normally


class LoopTraining:
    """Training in this rank by one call of the user's `train(run, ...)`."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        if rank.config.steps is not None:
            rank.functions.know(steps=rank.config.steps)
        self._training = ExternalTraining(rank)
        train = vars(rank.loaded.module)[TRAIN]
        self._training.called = {TRAIN: train}
        if isinstance(train, FunctionType) and (carried := carried_variables(train)):
            self._training.guarantee += (
                f", but a restart begins anew what train() carries from step to step: {', '.join(carried)}: keep it "
                "in a dict that run.restore() has"
            )
        settings = LoopSettings(
            config=rank.config,
            rank=rank.ranks.rank,
            world=rank.ranks.size,
            device=rank.device,
            note=rank.note,
            targets=rank.job.until is not None,
            workers=rank.loader_workers,
            limit=rank.limit_guarantee,
        )
        self._methods = RunMethods(self._training, settings, rank.functions.params)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.position.step

    def train(self) -> int:
        """Call the user's `train`, commit a final checkpoint, and return the process's exit code."""
        run.attach(self._methods)
        check = RegistrationCheck(self._methods.registered, self._rank.ranks.size, self._rank.note)
        try:
            with self._framework(), children_end_here(), ending_normally():
                self._rank.functions.prepared(TRAIN, frozenset())()
            self._training.finish()
        except Leave as leave:
            return leave.code
        finally:
            check.close()
        return FINISHED

    def _framework(self) -> AbstractContextManager[None]:
        """Return the context in which to call the user's `train`.

        If `train` uses a Hugging Face Trainer, the context makes that Trainer train as a rank of this job; else it does
        nothing.
        """
        if not self._rank.loaded.definition.trainer:
            return nullcontext()
        # Imported here, as only such a loop needs transformers.
        from kernel_backend.runner.forms.trainer.training import trained_within

        self._methods.loop.leave_steps()
        return trained_within(self._training, lambda name, value: self._methods.register({name: value}))

    def models(self, best: bool) -> nn.Module | dict[str, nn.Module]:
        """Return the torch module that the user has registered as `model`, else all registered modules by name.

        `best` is ignored: the weights are always the last ones.
        """
        modules = {name: each for name, each in self._methods.registered.items() if isinstance(each, nn.Module)}
        return modules.get("model", modules)

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop loader workers."""
        self._training.close()
        self._methods.loop.close()
