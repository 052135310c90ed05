"""Decide when to validate, and act on the result: remember the best model, step schedules, stop early."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from torch.optim.lr_scheduler import ReduceLROnPlateau

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.model.facts import TestResult
from kernel_backend.model.reports import Fact, Note, Report
from kernel_backend.runner.definition.functions import parts_of
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.loop.evaluate import validate
from kernel_backend.runner.loop.forward import reseed
from kernel_backend.runner.metrics.sums import evaluating
from kernel_backend.runner.timing.clock import CLOCK

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


def due(run: Training) -> bool:
    """Return True if a validation must follow the step just taken.

    `--validate-every` decides that, by default at the end of each epoch; a validation also follows the last step of
    all.
    """
    every = run.config.validate_every
    if run.over or every is None:
        return run.over or run.ends
    if every.steps is not None:
        return run.step % every.steps == 0
    return run.ends and run.passes % (every.epochs or 1) == 0


def validate_if_due(run: Training, ends: bool) -> bool:
    """Run a validation if one is due after the step just taken; return True if its result is the best so far.

    `ends` is True if that step is the last of its epoch. Then schedules that count epochs are advanced first, and the
    user's `on_epoch` is called afterwards.
    """
    run.validated = True
    if ends and run.config.schedule_per == "epoch":
        for each in run.objectives:
            each.step_schedules()
    improved = due(run) and check(run)
    if ends:
        end_epoch(run)
    return improved


def check(run: Training, between: bool = False) -> bool:
    """Run a validation and report its metrics; return True if its result is the best so far.

    With `between` it is an extra validation, which a search needs to compare trials. It leaves buffers, random states,
    schedules and the count of `--patience` unchanged.
    """
    if run.validation is None:
        return False
    with CLOCK.part("validation"), ExitStack() as aside:
        if between:
            aside.enter_context(run.logical.aside())
            if run.streams is not None:
                aside.enter_context(run.streams.aside())
        run.validation_metrics = validate(run, run.validation)
    run.first_epoch.validated()
    report_again(run)
    return judge(run, between)


def report_again(run: Training) -> None:
    """Repeat the report of the newest validation, in case it was lost; the service ignores duplicates."""
    if run.validation_metrics:
        run.spool.say(Report(kind="validation", step=run.step, epoch=run.epoch, metrics=run.validation_metrics))


@CLOCK.part("validation")
def end_epoch(run: Training) -> None:
    """Call the user's `on_epoch`, if there is one, on rank 0 after an epoch, with the models that validation uses.

    Random states and buffers are restored afterwards.
    """
    if run.on_epoch is None or run.ranks.rank != 0:
        return
    run.progress.tick("validation", run.step)
    model = run.model if run.average is None else run.average.module
    with RandomStates().aside(), run.logical.aside(), run.statistics.apart(), evaluating(model):
        reseed(run, "on_epoch", run.current)
        run.on_epoch(model=model, epoch=run.current, **parts_of(model))


def evaluate_test_data(run: Training) -> None:
    """Evaluate the best weights on the user's `test_data`, if there is any, and report the result.

    Call it after the final checkpoint. Raises InvalidDefinition in the same cases as a validation.
    """
    if run.test is None:
        return
    manifest = run.checkpoints.restore_best()
    metrics = validate(run, run.test)
    fact = TestResult(metrics=metrics, checkpoint=manifest.id)
    run.spool.say(Fact(name="test", value=fact.to_json()))
    found = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
    text = f"test: {found} (weights of step {manifest.step}{_why_best(run, manifest)})"
    run.spool.say(Note(text=text))


def _why_best(run: Training, manifest: Manifest) -> str:
    metric = run.config.metric
    value = metric.of(manifest.metrics)
    return "" if value is None else f", the best with {metric.name} {value:.6g} in validation"


def judge(run: Training, between: bool) -> bool:
    """Compare the newest validation with the best; step ReduceLROnPlateau schedules, and stop early by `--patience`.

    Return True if the newest validation is the best so far. After an extra validation (`between`), schedules and the
    count of `--patience` stay as they are. Raises InvalidDefinition if the metric that a search or `--patience` needs
    is missing, and NotFinite if the metric was not finite several times in a row.
    """
    metrics, metric = run.validation_metrics, run.config.metric
    improved = run.judgement.validation(
        run.step, metrics, counts=not between, last=run.over, place=f"after epoch {run.epoch:.4g}"
    )
    if not between and metric.name in metrics:
        for schedule in [schedule for each in run.objectives for schedule in each.schedules]:
            if isinstance(schedule, ReduceLROnPlateau):
                schedule.step(metrics[metric.name])
    run.over = run.over or run.judgement.stopped
    return improved
