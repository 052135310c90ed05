"""Run the training loop: steps, reports, validation, checkpoints, release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.reports import Note, Report
from kernel_backend.runner.checkpoint.checkpointer import Position
from kernel_backend.runner.data import Batch
from kernel_backend.runner.definition.functions import loss_and_logged
from kernel_backend.runner.determinism import seeds
from kernel_backend.runner.gradients.reducer import ControlFlags, ControlWord
from kernel_backend.runner.loop.coupled import compares, warn_if_coupled
from kernel_backend.runner.loop.evaluate import validate
from kernel_backend.runner.loop.forward import forward, reseed
from kernel_backend.runner.loop.nan_origin import nan_origin
from kernel_backend.runner.loop.objective import Objective
from kernel_backend.runner.loop.training import Training
from kernel_backend.runner.loop.training_step import call_step
from kernel_backend.runner.loop.whole_loss import gathers, share_losses
from kernel_backend.runner.metrics.join import host_copy
from kernel_backend.runner.metrics.sums import Sums
from kernel_backend.runner.metrics.whole_set import MetricPart

FINISHED, RELEASED = 0, 85


class StepResult(NamedTuple):
    """Result of a step: the flags of all ranks, each objective's loss, and logged values."""

    flags: ControlFlags
    losses: dict[str, Tensor | float]  # of the global batch, by label
    logged: Sums


def train(run: Training) -> int:
    """Train to the end, or until released, and return the exit code."""
    if run.over:
        return FINISHED  # it was killed between its last checkpoint and its exit
    if not run.validated and end_epoch(run):
        save(run)
    if run.target.reached(run.units):  # its slots, or the service, went away before a new target came
        report_again(run)
        if not run.target.moves_on(run.units, run.step):
            return RELEASED
    for shares in batches(run):
        result = take_step(run, shares)
        run.step += 1
        run.first_epoch.take(shares)
        run.validation_metrics, ends, run.current = {}, shares[0].last, shares[0].epoch
        run.passes = shares[0].epoch + ends
        run.over = run.step == run.config.steps or run.passes == run.epochs
        here = run.target.reached(run.units) and not run.over
        for each in run.objectives:
            if not each.finite.waits or result.flags.report or ends or run.over:
                each.finite.check(run.step, run.model, last=run.over)
        if result.flags.report:
            report(run, result)
        if result.flags.release and not run.over and not here:
            run.validated = not ends
            run.progress.tick("finishing", run.step)
            run.checkpoints.finish(moment(run))
            return RELEASED
        improved = end_epoch(run) if ends else (run.over and check(run)) or (here and check(run, between=True))
        if run.over or run.step == run.config.until:
            break
        if here:
            commit(run)
            if not run.target.moves_on(run.units, run.step):
                return RELEASED
        elif any(each.finite.broken for each in run.objectives):
            continue  # weights that may be broken are not worth restoring
        elif improved or result.flags.checkpoint or (ends and run.pace.after_epoch(shares[0].epoch + 1)):
            save(run)
    run.first_epoch.finish()
    run.progress.tick("finishing", run.step)
    run.checkpoints.finish(moment(run))
    return FINISHED


def batches(run: Training) -> Iterator[list[Batch]]:
    """Iterate over the remaining steps: a batch for each logical rank of this process."""
    left = run.train.steps(run.step, run.total_steps)
    return run.streams.isolated(left) if run.streams else left


def take_step(run: Training, shares: list[Batch]) -> StepResult:
    """Train on one global batch: for each objective, compute gradients, sum them over the ranks and update."""
    run.progress.tick("first step" if run.step == run.began else "step", run.step + 1)
    flags, none = control_flags(run), ControlFlags()
    losses: dict[str, Tensor | float] = {}
    logged = Sums()
    for objective in run.objectives:
        last = objective is run.objectives[-1]
        compared: list[MetricPart] | None = [] if compares(run) else None
        word = summed(run, objective, shares, flags if last else none, logged, compared)
        run.checkpoints.settle()
        if word.samples:  # it trains something this time
            losses[objective.label] = word.loss
            if compared is not None:
                warn_if_coupled(run, compared, float(word.loss))
            objective.finite.take(word.loss, partial(nan_origin, run, objective, shares))
            with drawing_alike(run, objective):
                update(run, objective)
    complete_step(run)
    return StepResult(word.flags, losses, logged)


def summed(
    run: Training,
    objective: Objective,
    shares: list[Batch],
    flags: ControlFlags,
    logged: Sums,
    compared: list[MetricPart] | None,
) -> ControlWord:
    """Compute an objective's gradients of all shares and sum them over the ranks; return the control word."""
    gradients = objective.gradients
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
    """Yield the mean loss of each share; the caller computes its gradients before taking the next."""
    for rank, batch in zip(run.logical.mine, shares, strict=True):
        run.logical.take(rank)
        if run.streams is None:
            reseed(run, "step", run.step, rank, *run.draws_for(objective))
        yield loss_of(run, objective, rank, batch, logged, compared)


def loss_of(
    run: Training,
    objective: Objective,
    rank: int,
    batch: Batch,
    logged: Sums,
    compared: list[MetricPart] | None = None,
) -> Tensor | None:
    """Return the mean loss of one share, None if it is empty; add values to log to `logged`.

    A copy of the loss function's arguments is added to `compared`.
    """
    if not batch.samples:
        return None
    with run.precision(), lone_sample_told(batch):
        if objective.function is not None:
            result = call_step(run, objective, run.model, batch.data, batch.epoch, run.step)
        else:
            given = forward(run, run.model, batch, batch.epoch)
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
    """Convert BatchNorm's error about a share of one sample into InvalidDefinition with advice."""
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
    """Return this rank's requests for the current step; rank 0 alone reads clocks."""
    decides = run.ranks.rank == 0
    return ControlFlags(
        release=run.instructions.release,
        checkpoint=decides and (run.checkpoints.due or run.pace.checkpoint(run.step + 1)),
        report=decides and run.pace.report(run.step + 1),
    )


@contextmanager
def drawing_alike(run: Training, objective: Objective) -> Iterator[None]:
    """Seed every rank equally in the block, so that optimizers that draw random numbers stay in sync.

    Examples of such optimizers are Langevin noise and stochastic rounding.
    """
    if run.streams is None:
        reseed(run, "update", run.step, *run.draws_for(objective))
        yield
    else:
        with run.streams.aside():
            seeds.reseed(seeds.mix(run.config.seed, "update", run.step, *run.draws_for(objective)))
            yield


def update(run: Training, objective: Objective) -> None:
    """Update an objective's weights by their gradients."""
    if run.config.clip is not None:
        for optimizer in objective.optimizers.values():
            objective.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(objective.clipped, run.config.clip)
    for optimizer in objective.optimizers.values():
        objective.scaler.step(optimizer)
    objective.scaler.update()


def complete_step(run: Training) -> None:
    """Finish a step: advance per-step schedules, load the first logical rank's buffers, update averaged weights."""
    if run.config.schedule_per == "step":
        for each in run.objectives:
            each.step_schedules()
    run.logical.take(run.logical.mine.start)
    if run.average is not None:
        run.average.update(run.model)


def report(run: Training, result: StepResult) -> None:
    """Report the losses of the global batch and the values that were logged."""
    losses = {label: float(loss) for label, loss in result.losses.items()}
    logged = result.logged.means(run.ranks) if result.flags.logged else {}
    metrics = losses | logged | losses  # losses first, whatever else is logged by their names
    run.spool.say(Report(kind="training", step=run.step, epoch=run.epoch, metrics=metrics))


def end_epoch(run: Training) -> bool:
    """Advance per-epoch schedules and validate; return True if this is the best model so far."""
    run.validated = True
    if run.config.schedule_per == "epoch":
        for each in run.objectives:
            each.step_schedules()
    return check(run)


def check(run: Training, between: bool = False) -> bool:
    """Validate and report; return True if this is the best model so far.

    A validation `between` epochs, which a target requires, leaves buffers, random states and schedules unchanged.
    """
    if run.validation is None:
        return False
    with ExitStack() as aside:
        if between:
            aside.enter_context(run.logical.aside())
            if run.streams is not None:
                aside.enter_context(run.streams.aside())
        run.validation_metrics = validate(run, run.validation)
    run.first_epoch.validated()
    report_again(run)
    return judge(run, between)


def report_again(run: Training) -> None:
    """Report the validation at this step, if any; the service ignores duplicates."""
    if run.validation_metrics:
        run.spool.say(Report(kind="validation", step=run.step, epoch=run.epoch, metrics=run.validation_metrics))


def judge(run: Training, between: bool) -> bool:
    """Compare this validation with the best one, and step ReduceLROnPlateau schedules.

    Returns True if it is the best so far. Raises InvalidDefinition if the metric of a search is missing.
    """
    metric = run.config.metric
    if metric.name not in run.validation_metrics:
        known = " ".join(run.validation_metrics)
        text = f"--metric {metric.name}: the validation says nothing of that name, only {known}"
        if run.config.search is not None:
            raise InvalidDefinition(f"{text}; a search goes by it: choose one of these, or have metrics() return it")
        run.spool.say(Note(level="warning", text=f"{text}; no checkpoint is best"))
        return False
    value = run.validation_metrics[metric.name]
    for schedule in [schedule for each in run.objectives for schedule in each.schedules if not between]:
        if isinstance(schedule, ReduceLROnPlateau):
            schedule.step(value)
    if not metric.better(value, run.best):
        return False
    run.best = value
    return True


def save(run: Training) -> None:
    """Begin a checkpoint; training goes on meanwhile."""
    run.progress.tick("checkpoint", run.step)
    run.checkpoints.save(moment(run))
    run.pace.saved()


def commit(run: Training) -> None:
    """Commit a checkpoint before continuing."""
    run.progress.tick("checkpoint", run.step)
    run.checkpoints.finish(moment(run))
    run.pace.saved()


def moment(run: Training) -> Position:
    """Return the training's position for a checkpoint; called by all ranks."""
    facts = {
        "best": run.best,
        "validated": run.validated,
        "over": run.over,
        "passes": run.passes,
        "data": run.train.state(),
        "first_epoch": run.first_epoch.state(),
    }
    return Position(run.step, run.epoch, run.validation_metrics, facts)
