"""Measure a trained model in a rank of a job, on all rows of `evaluate_data()`.

In a round each rank measures one of the next batches. Nothing is resumed: an attempt that follows a kill, or that has
other slots, measures all rows again, so that metrics of the whole data are right, and the result is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernel_backend.definition.prediction_form import EVALUATE_DATA, TARGET
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import FINISHED
from kernel_backend.model.reports import Report
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.determinism.random_states import Reseeded
from kernel_backend.runner.external_loop.leave import Leave
from kernel_backend.runner.external_loop.training import ExternalTraining
from kernel_backend.runner.forms.prediction.measures import labelled, library_measure, measure_of
from kernel_backend.runner.forms.prediction.model import TrainedModel
from kernel_backend.runner.loop.forward import to_device

_GUARANTEE = "reproducible: all rows are measured in one attempt, batch by batch in their order, on any number of slots"


class Evaluation:
    """Evaluation of a trained model in this rank."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        self._trained = TrainedModel(rank)
        self._rows = self._trained.rows(rank.functions, EVALUATE_DATA)
        if not len(self._rows):
            raise InvalidDefinition(f"{EVALUATE_DATA}() has no rows")
        self._target = str(rank.functions.params[TARGET])
        self._training = ExternalTraining(rank, "evaluation", own=Reseeded())
        self._training.guarantee = _GUARANTEE
        self._training.expected_steps = len(self._rows)
        self._so_far: dict[str, tuple[float, int]] = {}  # of this rank: sums over rows, and how many
        self._own = 0  # rows that this rank has measured

    @property
    def step(self) -> int:
        """Return the number of rows that are measured."""
        return self._training.position.step

    def train(self) -> int:
        """Measure all rows, report the values, and return the exit code."""
        training = self._training
        training.restart()
        try:
            training.begin()
            values = self._measured()
            if self._rank.ranks.rank == 0:
                self._rank.spool.say(Report(kind="validation", step=self.step, epoch=1.0, metrics=values))
            training.finish()
        except Leave as leave:
            return leave.code
        return FINISHED

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        self._training.close()

    def _measured(self) -> dict[str, float]:
        rank, model = self._rank, self._trained.load().models
        by_library = library_measure(rank, self._trained, model)
        if by_library is not None:
            return by_library(self._each())
        measure, ranks, size = measure_of(rank, self._trained, model), rank.ranks, rank.config.batch_size
        for at in range(0, self._batches, ranks.size):
            self._training.begin_step()
            values, rows = {}, 0
            if (number := at + ranks.rank) < self._batches:
                seeds.reseed(seeds.mix(rank.config.seed, "evaluate", number))
                with torch.no_grad():
                    batch, rows = self._batch(number)
                    values = measure.add(number, to_device(batch, rank.device), rows)
            measure.end_round(at)
            self._reached((at + ranks.size) * size, values, rows)
        with torch.no_grad():
            return measure.finish()

    def _each(self) -> Iterator[Any]:
        for number in range(self._batches):
            self._training.begin_step()
            batch, rows = self._batch(number)
            yield batch
            self._reached((number + 1) * self._rank.config.batch_size, {}, rows)

    @property
    def _batches(self) -> int:
        return -(-len(self._rows) // self._rank.config.batch_size)

    def _batch(self, number: int) -> tuple[Any, int]:
        first = number * self._rank.config.batch_size
        end = min(len(self._rows), first + self._rank.config.batch_size)
        return labelled(self._rows.batch(first, end), self._target), end - first

    def _reached(self, rows: int, values: Mapping[str, float], count: int) -> None:
        """End a step after which so many rows are measured; `values` are means of this rank's batch of `count` rows."""
        training, rows = self._training, min(rows, len(self._rows))
        training.position.step = rows - 1
        training.position.fraction = rows / len(self._rows)
        for name, value in values.items():
            total, before = self._so_far.get(name, (0.0, 0))
            self._so_far[name] = total + value * count, before + count
        self._own += count
        if self._own:  # else there are fewer batches than ranks
            means = {name: total / measured for name, (total, measured) in self._so_far.items()}
            training.report("training", means or {"rows": rows}, weight=self._own)
        training.end_step(last=rows == len(self._rows))
