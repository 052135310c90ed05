"""Run the training loop: steps, reports, checkpoints, and release of the slots on request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.launch.exit_codes import FINISHED, RELEASED
from kernel_backend.model.reports import Report
from kernel_backend.runner.checkpoint.checkpointer import Position
from kernel_backend.runner.data import Batch
from kernel_backend.runner.definition.functions import loss_and_logged
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.gradients.reducer import ControlFlags, ControlWord
from kernel_backend.runner.loop.coupled import compares, warn_if_coupled
from kernel_backend.runner.loop.finite import LossNotFinite
from kernel_backend.runner.loop.forward import augmented, forward, pieces, reseed
from kernel_backend.runner.loop.full_batches import check_shared
from kernel_backend.runner.loop.go_back import go_back, is_left_out, safe_step
from kernel_backend.runner.loop.nan_origin import nan_origin
from kernel_backend.runner.loop.objective import Objective
from kernel_backend.runner.loop.training import Training
from kernel_backend.runner.loop.training_step import call_step
from kernel_backend.runner.loop.validation import check, due, evaluate_test_data, report_again, validate_if_due
from kernel_backend.runner.loop.whole_loss import gathers, share_losses
from kernel_backend.runner.metrics.join import host_copy
from kernel_backend.runner.metrics.sums import Sums
from kernel_backend.runner.metrics.whole_set import MetricPart
from kernel_backend.runner.timing.clock import CLOCK


class StepResult(NamedTuple):
    """Result of a training step: requests of all ranks, each objective's loss, and values that the user logs."""

    flags: ControlFlags
    losses: dict[str, Tensor | float]  # losses of the global batch, by label
    logged: Sums


def train(run: Training) -> int:
    """Train to the end, or until the slots must be released; return the exit code, FINISHED (0) or RELEASED (85)."""
    if run.over:  # killed between its last checkpoint and its exit
        evaluate_test_data(run)
        return FINISHED
    if run.step == 0 and run.config.validate_first and not run.validation_metrics:
        check(run)
    if not run.validated and validate_if_due(run, run.ends):
        save(run)
    if run.target.reached(run.units):  # the last attempt lost its slots, or the service, before a further target came
        report_again(run)
        if not run.target.moves_on(run.units, run.step):
            return RELEASED
    while True:
        try:
            return take_steps(run)
        except LossNotFinite as broken:
            go_back(run, broken)


def take_steps(run: Training) -> int:
    """Take the remaining steps; return the exit code, FINISHED (0) or RELEASED (85).

    Raises LossNotFinite if the training must go back to a checkpoint.
    """
    for shares in batches(run):
        result = leave_out(run) if is_left_out(run, run.step + 1) else take_step(run, shares)
        run.step += 1
        if run.step > run.furthest:
            run.furthest = run.step
            run.first_epoch.take(shares)
        run.validation_metrics, run.ends, run.current = {}, shares[0].last, shares[0].epoch
        run.passes = shares[0].epoch + run.ends
        run.over = run.step == run.config.steps or run.passes == run.epochs
        run.validated = not (run.ends or due(run))
        here = run.target.reached(run.units) and not run.over
        for each in run.objectives:
            if not each.finite.waits or result.flags.report or run.ends or run.over:
                each.finite.check(run.step, run.model, last=run.over)
        if result.flags.report:
            report(run, result)
        if result.flags.release and not run.over and not here:
            run.progress.tick("finishing", run.step)
            run.checkpoints.finish(moment(run))
            return RELEASED
        improved = validate_if_due(run, run.ends) or (here and not due(run) and check(run, between=True))
        if run.over or run.step == run.config.until:
            break
        if here:
            commit(run)
            if not run.target.moves_on(run.units, run.step):
                return RELEASED
        elif any(each.finite.broken for each in run.objectives):
            continue  # weights that may be broken are not saved
        elif (
            (improved and not is_left_out(run, run.step))
            or result.flags.checkpoint
            or (run.ends and run.pace.after_epoch(shares[0].epoch + 1))
        ):
            save(run)
    run.first_epoch.finish()
    run.progress.tick("finishing", run.step)
    run.checkpoints.finish(moment(run))
    if run.over and not run.config.await_evaluation:  # else it is not known yet which weights are best
        evaluate_test_data(run)
    return FINISHED


def batches(run: Training) -> Iterator[list[Batch]]:
    """Yield, for each remaining step, the shares of its global batch that this process computes."""
    left = run.train.steps(run.step, run.total_steps)
    return run.streams.isolated(left) if run.streams else left


def take_step(run: Training, shares: list[Batch]) -> StepResult:
    """Train on one global batch; return the losses, logged values and requests of all ranks.

    For each objective, gradients are computed and summed over the ranks, and weights are updated. `shares` are the
    parts of the batch that this process computes.
    """
    run.progress.tick("first step" if run.step == run.began else "step", run.step + 1)
    flags, none = control_flags(run), ControlFlags()
    losses: dict[str, Tensor | float] = {}
    logged = Sums()
    for objective in run.objectives:
        last = objective is run.objectives[-1]
        compared: list[MetricPart] | None = [] if compares(run) else None
        word = summed(run, objective, shares, flags if last else none, logged, compared)
        run.checkpoints.settle()
        if word.samples:  # the objective trains in this step
            losses[objective.label] = word.loss
            if compared is not None:
                warn_if_coupled(run, compared, float(word.loss))
            objective.finite.take(run.step + 1, word.loss, partial(nan_origin, run, objective, shares))
            with drawing_alike(run, objective), CLOCK.part("optimizer"):
                update(run, objective)
    complete_step(run)
    return StepResult(word.flags, losses, logged)


def leave_out(run: Training) -> StepResult:
    """Skip a global batch, to leave out steps that led to a non-finite loss; return a result without losses.

    Schedules that count steps are advanced, but nothing is trained.
    """
    run.progress.tick("step", run.step + 1)
    run.checkpoints.settle()
    if run.config.schedule_per == "step":
        for each in run.objectives:
            each.step_schedules()
    return StepResult(ControlFlags(checkpoint=run.pace.checkpoint(run.step + 1)), {}, Sums())


def summed(
    run: Training,
    objective: Objective,
    shares: list[Batch],
    flags: ControlFlags,
    logged: Sums,
    compared: list[MetricPart] | None,
) -> ControlWord:
    """Compute an objective's gradients for this process's shares of a batch, and sum them over the ranks.

    Return the sample count, mean loss and flags over all ranks. `flags` are this rank's requests. Values that the user
    logs are added to `logged`. If `compared` is a list, copies of the loss function's arguments are appended to it.
    """
    gradients = objective.gradients
    check_shared(run.config, shares[0].total, run.ranks.size)
    with objective.trained_alone():
        gradients.begin()
        whole = gathers(run)
        losses = share_losses(run, shares, logged) if whole else each_loss(run, objective, shares, logged, compared)
        for batch, loss in zip(shares, losses, strict=True):
            samples = 0 if loss is None else batch.samples
            gradients.add(loss, samples, batch.total, flags._replace(logged=bool(logged)))
        word = gradients.finish()
    if 0 < word.samples < shares[0].total:
        raise InvalidDefinition(
            f"{objective.role}() returned None for a part of a global batch: let it depend on index or epoch whether "
            "it trains, which are the same for all slots"
        )
    return word


def each_loss(
    run: Training, objective: Objective, shares: list[Batch], logged: Sums, compared: list[MetricPart] | None
) -> Iterator[Tensor | None]:
    """Yield the mean loss of each share in turn, None for a share that trains nothing.

    The caller must compute the gradients of a loss before it requests the next one. Values that the user logs are added
    to `logged`. If `compared` is a list, copies of the loss function's arguments are appended to it.
    """
    for part in pieces(run, shares):
        run.logical.take(part.rank)
        if run.streams is None:
            reseed(run, "step", run.step, part.rank, *part.draws, *run.draws_for(objective))
        with CLOCK.part("forward"):
            loss = loss_of(run, objective, part.rank, part.batch, logged, compared)
        yield loss


def loss_of(
    run: Training,
    objective: Objective,
    rank: int,
    batch: Batch,
    logged: Sums,
    compared: list[MetricPart] | None = None,
) -> Tensor | None:
    """Return the mean loss of one share (`batch`), None if the share trains nothing.

    `rank` is the share's logical rank. Values that the user logs are added to `logged`. If `compared` is a list, a copy
    of the loss function's arguments is appended to it.
    """
    if not batch.samples:
        return None
    with run.precision(), lone_sample_told(batch):
        if objective.function is not None:
            result = call_step(
                run, objective, run.model, augmented(run, batch.data, batch.epoch), batch.epoch, run.step
            )
        else:
            given = forward(run, run.model, batch, batch.epoch, augments=True)
            if compared is not None:
                own = {name: host_copy(given[name]) for name in run.loss_asks}
                compared.append(MetricPart(0, rank, batch.samples, own))
            result = loss_and_logged(run.loss_function(**given))
    if result is None:
        return None
    loss, values = result
    for name, value in values.items():
        logged.add(name, value, batch.samples, rank)
    return loss


@contextmanager
def lone_sample_told(batch: Batch) -> Iterator[None]:
    """Replace BatchNorm's error about a single sample, raised in the `with` block, by InvalidDefinition with advice."""
    try:
        yield
    except ValueError as error:
        if batch.samples > 1 or "Expected more than 1 value per channel" not in str(error):
            raise
        raise InvalidDefinition(
            f"BatchNorm cannot train on one sample, and this batch of {batch.total} leaves a slot one: choose another "
            "--batch-size, or drop the last batch by returning a DataLoader with drop_last=True"
        ) from error


def control_flags(run: Training) -> ControlFlags:
    """Return this rank's requests for the current step: to release the slots, to save a checkpoint, to report.

    Rank 0 alone requests checkpoints and reports, which depend on the time.
    """
    decides = run.ranks.rank == 0
    return ControlFlags(
        release=run.instructions.release,
        checkpoint=decides and (run.checkpoints.due or run.pace.checkpoint(run.step + 1)),
        report=decides and run.pace.report(run.step + 1),
    )


@contextmanager
def drawing_alike(run: Training, objective: Objective) -> Iterator[None]:
    """Seed the random generators of all ranks equally for the `with` block that updates the weights.

    Optimizers that draw random numbers, as for Langevin dynamics or stochastic rounding, must draw the same on all
    ranks.
    """
    if run.streams is None:
        reseed(run, "update", run.step, *run.draws_for(objective))
        yield
    else:
        with run.streams.aside():
            seeds.reseed(seeds.mix(run.config.seed, "update", run.step, *run.draws_for(objective)))
            yield


def update(run: Training, objective: Objective) -> None:
    """Update the weights: clip the gradients if `--clip` is given, and take a step with the objective's optimizers."""
    if run.config.clip is not None:
        for optimizer in objective.optimizers.values():
            objective.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(objective.clipped, run.config.clip)
    for optimizer in objective.optimizers.values():
        objective.scaler.step(optimizer)
    objective.scaler.update()


def complete_step(run: Training) -> None:
    """Finish a step: advance schedules that count steps, and update the averaged weights.

    The modules get the buffers of the first logical rank that this process computes.
    """
    if run.config.schedule_per == "step":
        for each in run.objectives:
            each.step_schedules()
    run.logical.take(run.logical.mine.start)
    if run.average is not None:
        run.average.update(run.model)


def report(run: Training, result: StepResult) -> None:
    """Report a step's losses over the global batch, and the means of the values that the user has logged."""
    losses = {label: float(loss) for label, loss in result.losses.items()}
    logged = result.logged.means(run.ranks) if result.flags.logged else {}
    metrics = losses | logged | losses  # losses come first, and take precedence over logged values of the same name
    run.spool.say(Report(kind="training", step=run.step, epoch=run.epoch, metrics=metrics))


def save(run: Training) -> None:
    """Start to save a checkpoint of the present step; the training continues while it is written."""
    run.progress.tick("checkpoint", run.step)
    if run.config.on_nan == "go_back":
        run.checkpoints.retained = safe_step(run, run.step + 1)
    run.checkpoints.save(moment(run))
    run.pace.saved()


def commit(run: Training) -> None:
    """Save a checkpoint of the present step, and return when it is committed."""
    run.progress.tick("checkpoint", run.step)
    run.checkpoints.finish(moment(run))
    run.pace.saved()


def moment(run: Training) -> Position:
    """Return what a checkpoint stores of the loop: step, newest validation and other facts; all ranks call it."""
    facts = {
        "judgement": run.judgement.state(),
        "validated": run.validated,
        "ends": run.ends,
        "left_out": [[each.start, each.stop] for each in run.left_out],
        "over": run.over,
        "passes": run.passes,
        "data": run.train.state(),
        "first_epoch": run.first_epoch.state(),
    }
    return Position(run.step, run.epoch, run.validation_metrics, facts)
