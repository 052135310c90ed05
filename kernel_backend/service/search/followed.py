"""Read the checkpoints of trainings that evaluations follow, and record what the evaluations have measured."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.checkpoints.verify import followers_among
from kernel_backend.errors import NotFound
from kernel_backend.lifecycle.resume import lineage
from kernel_backend.model.experiment import Experiment, Metric
from kernel_backend.model.ids import AttemptId, Reference, parse_source
from kernel_backend.model.reports import Report
from kernel_backend.model.search.records import Prune
from kernel_backend.model.states import EXPERIMENT_ENDED, TRIAL_ENDED, TrialState
from kernel_backend.model.trial import BEFORE, Trial, parse_beginning
from kernel_backend.search.effects import effect
from kernel_backend.store.base import Store


class News(NamedTuple):
    """Checkpoints of a followed training, as 12.3/500-2, in the order of their times; and whether it saves no more.

    `seq` is the newest change in the store before the training was read.
    """

    checkpoints: list[str]
    ended: bool
    seq: int


class FollowedCheckpoints:
    """Reader of followed trainings, which marks their trials so that no checkpoint is deleted unmeasured.

    Its methods read users' files: call them in threads that may block. All may be repeated after a kill.
    """

    def __init__(self, store: Store, storage: CheckpointStorage) -> None:
        self._store, self._storage = store, storage

    def changed(self, evaluation: Experiment, since: int | None) -> bool:
        """Return whether the training has changed since the change number `since`; None: it was not read yet."""
        training = training_of(evaluation).experiment
        if since is None or self._store.touched_trials(training, since):
            return True
        return self._store.experiment(training).state in EXPERIMENT_ENDED

    def news(self, evaluation: Experiment, since: int | None) -> News:
        """Return the checkpoints of trials that have changed since then, and mark these trials as followed."""
        training = training_of(evaluation)
        newest = self._store.last_seq()
        ended = self._store.experiment(training.experiment).state in EXPERIMENT_ENDED
        touched = None if since is None or ended else self._store.touched_trials(training.experiment, since)
        found: list[tuple[float, str]] = []
        for trial in self._trials(evaluation):
            ended |= trial.index == training.trial and trial.state in TRIAL_ENDED
            if touched is None or trial.index in touched:
                place = self.mark(evaluation, trial.experiment, trial.index)
                found += [(each.at, f"{trial.id}/{each.id}") for each in self._committed(place, trial)]
        return News([name for _, name in sorted(found)], ended, newest)

    def mark(self, evaluation: Experiment, experiment: int, trial: int) -> Checkpoints:
        """Mark a trial as followed, so that each of its checkpoints stays until it is measured; return its storage."""
        place = self._storage.open(experiment, trial)
        if evaluation.number not in followers_among(place.names()):
            place.follow(evaluation.number, True)
        return place

    def measured(self, evaluation: Experiment, trial: Trial) -> float | None:
        """Record what an ended trial of an evaluation has measured, and delete its copy of the checkpoint.

        The checkpoint is no longer retained for it. If the evaluation `records`, the values become a validation of the
        training. Returns the value of the evaluation's metric, NaN if it has none, and None if the trial has failed.
        """
        about = parse_beginning(trial.begins_from or "")
        number, index = map(int, about.trial.split("."))
        metrics = dict(trial.metrics) if trial.state is TrialState.COMPLETED else {}
        try:
            place = self._storage.open(number, index)
        except NotFound:  # the training was deleted
            place = None
        manifest = next((each for each in place.committed() if each.id == about.checkpoint), None) if place else None
        if place is not None and manifest is not None:
            values = self._validated(number, index, manifest, metrics) if evaluation.config.records else {}
            place.judge(about.checkpoint, evaluation.number, values)
        own = self._storage.open(trial.experiment, trial.index)
        for each in own.committed():
            own.discard(each.id)
        if trial.state is not TrialState.COMPLETED:
            return None
        value = evaluation.config.metric.of(metrics)
        return math.nan if value is None else value

    def leave(self, evaluation: Experiment) -> None:
        """End the marks of an evaluation, so that its training's own rules decide about all checkpoints."""
        for trial in self._trials(evaluation):
            self._storage.open(trial.experiment, trial.index).follow(evaluation.number, False)

    def _validated(self, number: int, index: int, manifest: Manifest, metrics: dict[str, float]) -> dict[str, float]:
        """Add measured values to the validations of a training's trial; return those that were added."""
        training = self._store.experiment(number)
        metric = training.config.metric
        if training.config.await_evaluation and metric.of(metrics) is None:
            metrics = metrics | {metric.name: math.nan}  # a search must not wait for ever
        if metrics:
            report = Report(
                kind="validation", step=manifest.step, epoch=manifest.epoch, metrics=metrics, at=time.time()
            )
            self._store.add_validation(AttemptId(number, index, manifest.attempt), report)
            if training.config.await_evaluation and training.config.patience is not None:
                self._stop_early(training, index, training.config.patience)
        return metrics

    def _stop_early(self, training: Experiment, index: int, patience: int) -> None:
        """End a trial whose last `patience` validations brought no new best value."""
        found = [each for each in self._store.validations(training.number) if each.trial == index]
        ordered = sorted(found, key=lambda each: each.step)
        metric, trial = training.config.metric, self._store.trial(training.number, index)
        waited = waited_for(metric, (value for each in ordered if (value := metric.of(each.metrics)) is not None))
        moved = effect(Prune(), trial) if waited >= patience else None
        if moved is not None:
            best = "" if trial.best is None else f"; the best was {trial.best.value:.6g} at step {trial.best.step}"
            text = f"stopped early: {waited} evaluations without a better {metric.name}{best}"
            self._store.note(AttemptId(training.number, index, trial.attempt), text, time.time())
            self._store.record(training.number, (), [moved], at=time.time())

    def _trials(self, evaluation: Experiment) -> list[Trial]:
        """Return the followed trials that may have checkpoints of their own."""
        trials = self._store.trials(training_of(evaluation).experiment)
        return [each for each in trials if each.attempt and follows(evaluation, each.experiment, each.index)]

    def _committed(self, place: Checkpoints, trial: Trial) -> list[Manifest]:
        """Return the checkpoints that a trial itself has saved, but those that it discarded by going back."""
        committed = [each for each in place.committed() if each.attempt != BEFORE]
        line = lineage(self._store.attempts(trial.experiment, trial.index), [each.id for each in committed])
        return [each for each in committed if each.id in line]


def training_of(evaluation: Experiment) -> Reference:
    """Return the experiment, or the trial, whose checkpoints an evaluation measures."""
    subject = parse_source(evaluation.config.weights_from or "").subject
    assert isinstance(subject, Reference)  # the validator refuses models
    return subject


def follows(evaluation: Experiment, experiment: int, trial: int) -> bool:
    """Return whether an evaluation measures the checkpoints of a trial."""
    training = training_of(evaluation)
    return training.experiment == experiment and training.trial in (None, trial)


def waited_for(metric: Metric, values: Iterable[float]) -> int:
    """Return how many of the last values in a row are no new best.

    Examples
    --------
    >>> waited_for(Metric(), [0.5, 0.4, 0.6, 0.4])
    2
    """
    best, waited = None, 0
    for value in values:
        better = metric.better(value, best)
        best, waited = (value, 0) if better else (best, waited + 1)
    return waited
