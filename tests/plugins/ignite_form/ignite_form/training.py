"""Run an engine of ignite in a rank of a job: it reports, saves, resumes in mid-epoch and gives up its slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch import nn

from ignite_form import RUN
from kernel_backend.model.launch.exit_codes import FINISHED
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.training import ExternalTraining


class IgniteTraining:
    """Training in this rank by one call of an engine's `run`."""

    def __init__(self, rank: RankContext) -> None:
        self._seed, self._epochs = rank.config.seed, rank.config.epochs
        self._training = ExternalTraining(rank, "ignite")
        held = vars(rank.loaded.module)
        self._engine: Engine
        self._engine, self._loader = held[RUN]
        for name, value in held.items():
            if isinstance(value, nn.Module | torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
                self._training.register(name, value)
        self._evaluators = [each for each in held.values() if isinstance(each, Engine) and each is not self._engine]
        self._training.called = {"step": self._engine._process_function}
        self._training.expected_steps = self._epochs * len(self._loader)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.position.step

    def train(self) -> int:
        """Run the engine from where the last attempt was, commit a final checkpoint, and return the exit code."""
        engine, training, length = self._engine, self._training, len(self._loader)
        engine.add_event_handler(Events.ITERATION_STARTED, lambda _: training.begin_step())
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._end_step)  # after the handlers of the cell
        engine.add_event_handler(Events.EPOCH_COMPLETED, self._end_epoch)
        state = {"iteration": self.step, "epoch_length": length, "max_epochs": self._epochs}
        try:
            training.begin()
            if not training.position.over and self.step < length * self._epochs:
                engine.load_state_dict(state)
                engine.run(self._batches(), epoch_length=length)
            training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        self._training.close()

    def _batches(self) -> Iterator[Any]:
        """Yield the batches that are left, of all epochs: their order follows from the seed and the epoch."""
        loader, done = self._loader, self.step
        for epoch in range(done // len(loader), self._epochs):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._seed * 1_000_003 + epoch)
                order = list(loader.batch_sampler)
            for indices in order[max(0, done - epoch * len(loader)) :]:
                yield loader.collate_fn([loader.dataset[index] for index in indices])

    def _end_step(self, engine: Engine) -> None:
        training, length, out = self._training, len(self._loader), engine.state.output
        training.report("training", out if isinstance(out, Mapping) else {"loss": out})
        training.position.fraction = (self.step % length + 1) / length
        if engine.state.iteration % length:
            training.end_step()
        else:
            training.abandon_step()  # the end of the epoch follows

    def _end_epoch(self, engine: Engine) -> None:
        """End an epoch, with the metrics of the engines that the cell has validated by."""
        found = {name: value for each in self._evaluators for name, value in each.state.metrics.items()}
        if found:
            self._training.report("validation", found)
        self._training.end_epoch(last=engine.state.epoch == self._epochs)
