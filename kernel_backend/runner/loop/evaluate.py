"""Compute validation loss and metrics over all samples, with equal results on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kernel_backend.model.reports import Note
from kernel_backend.runner.data import Batch, Batches
from kernel_backend.runner.definition.functions import loss_and_logged
from kernel_backend.runner.loop.coupled import ValidationSamples
from kernel_backend.runner.loop.forward import evaluated, reseed
from kernel_backend.runner.loop.objective import Objective
from kernel_backend.runner.loop.training_step import call_step
from kernel_backend.runner.loop.whole_loss import gathers, validation_loss
from kernel_backend.runner.metrics.sums import Sums, evaluating
from kernel_backend.runner.metrics.whole_set import Evaluation, MetricPart

if TYPE_CHECKING:
    from kernel_backend.runner.loop.training import Training


def validate(run: Training, data: Batches) -> dict[str, float]:
    """Run a validation on `data`; return the means of loss and metrics by name, equal on any number of ranks."""
    run.logical.share(run.ranks)
    model = run.model
    if run.average is not None:
        run.average.take_buffers(run.model)
        model = run.average.module
    sums = Sums()
    evaluation = run.metrics.begin(run.current) if run.metrics else None
    compared = ValidationSamples(run)
    run.progress.tick("validation", run.step)
    with evaluating(model, *run.logical.beside.values()):
        for number, shares in enumerate(data.in_order()):
            run.progress.tick("validation", run.step)
            with run.precision():
                # A rank without a share repeats another where the forward pass needs all ranks.
                counts = not run.strategy.sharded or data.own_samples(shares[0].total) > 0
                given = _given(run, model, number, shares, evaluation if counts else None, compared)
                if gathers(run):
                    validation_loss(run, number, given if counts else list(given)[:0], sums)
                else:
                    for part in given:
                        _add_losses(run, model, part, sums if counts else Sums())
            if evaluation is not None:
                evaluation.end_batch(number)
        means = sums.means(run.ranks)
        found = finish_metrics(run, evaluation) if evaluation is not None else {}
        if "loss" not in found:
            compared.warn_if_coupled()
        return run.config.metric.spelled(means | found)


def _given(
    run: Training,
    model: nn.Module,
    number: int,
    shares: list[Batch],
    evaluation: Evaluation | None,
    compared: ValidationSamples,
) -> Iterator[MetricPart]:
    """Yield the arguments of loss and metrics for each share of a validation batch that this process computes.

    `number` is the number of the batch. When the caller requests the next share, the previous one is added to the
    metrics (`evaluation`) and to the samples with which the loss is checked (`compared`).
    """
    for rank, batch in zip(run.logical.mine, shares, strict=True):
        if run.streams is None:
            reseed(run, "validation", run.step, number, rank)
        if batch.samples:
            part = MetricPart(number, rank, batch.samples, evaluated(run, model, batch, run.current))
            yield part
            compared.take(part)
            if evaluation is not None:
                evaluation.add(part)


def _add_losses(run: Training, model: nn.Module, part: MetricPart, sums: Sums) -> None:
    """Add the loss of a share of a validation batch to `sums`.

    If the user has no function `loss`, what the training steps return for the share is added: their losses and logged
    values.
    """
    if run.loss is not None:
        if _are_predictions(run, part.values["output"]):
            _tell_without_loss(run, "loss() is not called with them")
            return
        loss, _ = loss_and_logged(run.loss_function(**part.values))
        sums.add("loss", loss, part.samples, part.logical)
        return
    for objective in run.objectives:
        # With gradients, as a step may differentiate by its inputs, for example for a gradient penalty.
        with objective.trained_alone(), torch.enable_grad():
            result = _step_result(run, objective, model, part)
        if result is not None:
            loss, values = result
            for name, value in {objective.label: loss, **values}.items():
                sums.add(name, value, part.samples, part.logical)


def _step_result(
    run: Training, objective: Objective, model: nn.Module, part: MetricPart
) -> tuple[Tensor, Mapping[str, Any]] | None:
    """Return loss and logged values of a training step for a share; None if it cannot compute them in a validation.

    That is so if the model returned predictions instead of losses, and the step failed on them.
    """
    if not run.rule.takes_target:
        return call_step(run, objective, model, part.values["batch"], run.current, part.number)
    predicted: list[bool] = []
    hook = model.register_forward_hook(lambda *called: predicted.append(_are_predictions(run, called[-1])))
    try:
        return call_step(run, objective, model, part.values["batch"], run.current, part.number)
    except Exception as error:
        if not any(predicted):
            raise
        _tell_without_loss(run, f"{objective.role}() raised {type(error).__name__}: {error}")
        return None
    finally:
        hook.remove()


def _are_predictions(run: Training, output: Any) -> bool:
    """Return True for a dict per sample, which detection models return in a validation in place of their losses."""
    dicts = isinstance(output, list) and all(isinstance(each, Mapping) for each in output)
    return run.rule.takes_target and dicts


def _tell_without_loss(run: Training, how: str) -> None:
    if not run.told_without_loss:
        run.told_without_loss = True
        text = (
            f"the model returns predictions in a validation, and its losses in training alone ({how}): validations "
            "have no loss. Choose the best by another value: return it from metrics(output, target), and write "
            "--metric NAME:max"
        )
        run.spool.say(Note(text=text))


def finish_metrics(run: Training, evaluation: Evaluation) -> dict[str, float]:
    """Return the metrics over all samples by name.

    If they draw random numbers, these follow from seed and step.
    """
    run.progress.tick("validation", run.step)
    if run.streams is None:
        reseed(run, "validation", run.step, "metrics")
    with run.precision():
        return evaluation.finish()
