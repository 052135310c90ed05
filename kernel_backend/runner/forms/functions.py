"""Train user code that consists of functions such as `model`, `train_data` and `loss`.

The functions are called to build the training, which is then restored from its checkpoint and run by Daylight's loop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from torch import nn
from torch.amp import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm

from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.definition.forms.functions import FUNCTIONS
from kernel_backend.errors import InvalidDefinition
from kernel_backend.home import attempt_folder
from kernel_backend.model.experiment import Config
from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Fact, Note
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.runner.checkpoint.ema import WeightAverage
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.checkpoint.stateful import Schedule, Stateful
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batches, Source, source
from kernel_backend.runner.data.auto_workers import AutoWorkers
from kernel_backend.runner.data.user_sampler import own_sampler
from kernel_backend.runner.definition.auxiliary_modules import AuxiliaryModules, auxiliary_modules
from kernel_backend.runner.definition.functions import Functions, parts_of
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.definition.step_files import StepFiles, tells_ranks_apart
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.determinism.digests import weights
from kernel_backend.runner.determinism.generators import OwnGenerators
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.determinism.state_between_calls import state_between_calls
from kernel_backend.runner.external_loop.auxiliary_weights import UnheldOptimizers
from kernel_backend.runner.first_epoch import FirstEpoch
from kernel_backend.runner.gradients.tree import shares_of
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.loop.batch_rule import BatchRule
from kernel_backend.runner.loop.cadence import CadenceTimer
from kernel_backend.runner.loop.finite import Finite
from kernel_backend.runner.loop.forward import precision
from kernel_backend.runner.loop.full_batches import check_shared
from kernel_backend.runner.loop.judgement import Judgement
from kernel_backend.runner.loop.loop import train
from kernel_backend.runner.loop.objective import build_objectives, named
from kernel_backend.runner.loop.resume import take_position
from kernel_backend.runner.loop.strategy import strategy_of
from kernel_backend.runner.loop.target import Target
from kernel_backend.runner.loop.training import Training
from kernel_backend.runner.metrics.whole_set import Metrics
from kernel_backend.runner.ranks.batch_norm import SharedStatistics, synchronize

_ADVICE = "Look at what metrics() or loss() computes; --on-nan note trains on"


class FunctionsTraining:
    """Training, in this rank, of user code that consists of functions such as `model` and `train_data`."""

    def __init__(self, rank: RankContext) -> None:
        """Build the training, which is then at step 0; raise InvalidDefinition if the definition is not valid."""
        self._rank = rank
        self._training = build(rank)

    @property
    def step(self) -> int:
        """Return the number of steps taken."""
        return self._training.step

    def train(self) -> int:
        """Restore the checkpoint to resume from, if there is one, train, and return the exit code of the rank."""
        training, rank, functions = self._training, self._rank, self._rank.functions
        resumed = begin(training, rank.numerics, functions.schedules_know_length)
        generators = training.generators.ways
        guarantee = exactness.guarantee(rank.config, rank.ranks.size, rank.device, functions.asks_rank, generators)
        if training.train.is_stream and functions.needs_model("train_data"):
            guarantee = "not reproducible: train_data() reads a stream with the model, one batch ahead of the steps"
        called = {each.role: each.function for each in training.objectives}
        kept = state_between_calls({**called, "loss": training.loss, "augment": training.augment})
        if used := [name for name, is_read in kept.items() if is_read]:
            guarantee = (
                f"not reproducible: {', '.join(used)}: a function keeps it from batch to batch, each slot its own, "
                "and no checkpoint has it: make it a buffer (register_buffer) of the model, or of a module that it "
                "calls"
            )
        rank.say_started(
            steps_per_epoch=training.train.per_epoch,
            total_steps=training.total_steps,
            parameters=sum(each.numel() for each in training.model.parameters()),
            guarantee=guarantee,
            resumed_from=resumed,
        )
        if filled := [name for name, is_read in kept.items() if not is_read]:
            rank.note(
                f"{', '.join(filled)}: a function fills it from batch to batch, each slot its own, and no checkpoint "
                "has it: return values as metrics to have all of them",
                "warning",
            )
        own = [each for objective in training.objectives for each in objective.optimizers.values()]
        unheld = UnheldOptimizers(rank, own, lambda: training.step)
        try:
            return train(training)
        finally:
            unheld.close()

    def models(self, best: bool) -> nn.Module | dict[str, nn.Module]:
        """Return the trained model, or several models by name.

        The weights are the best ones if `best`, else the last ones; with `--ema`, averaged ones.
        """
        training = self._training
        if best:
            training.checkpoints.restore_best()
        model = training.model if training.average is None else training.average.module
        return parts_of(model.eval()) or model

    def close(self) -> None:
        """Wait for a checkpoint that is being written, and stop threads and loader workers."""
        training = self._training
        training.checkpoints.close()
        training.first_epoch.close()
        training.train.close()
        for data in (training.validation, training.test):
            if data is not None:
                data.close()
        training.files.close()


def build(rank: RankContext) -> Training:
    """Build the training from the user's functions, at step 0; raise InvalidDefinition if these are not valid."""
    job, loaded, functions, ranks, device = rank.job, rank.loaded, rank.functions, rank.ranks, rank.device
    instructions, spool, progress = rank.instructions, rank.spool, rank.progress
    config = job.config
    per_rank = shares_of(config.logical_workers or ranks.size, ranks.size)
    mine, count = per_rank[ranks.rank], per_rank[-1].stop
    strategy = strategy_of(config, ranks, per_rank, device)

    validates = functions.has("validation_data")
    if config.search_needs_validations and not validates:
        raise InvalidDefinition("a search compares validations, and there is no validation_data(): write that function")
    data = training_batches(rank)
    if config.on_nan == "go_back" and data.is_stream:
        raise InvalidDefinition(
            "--on-nan go_back needs samples with an index, and train_data() returned a stream: leave it out"
        )
    functions.know(**steps_known(config, data))
    model = functions.model().to(device)
    functions.know(**parts_of(model))
    if config.compile:
        for part in parts_of(model).values() or [model]:
            part.compile()
    if needs_pairs(model, config):
        data.keep_pairs()
    average = WeightAverage(model, config.ema, strategy.model) if config.ema is not None else None
    for module in [model] if average is None else [model, average.module]:
        strategy.place(module)
    optimizers = functions.optimizers(model)
    schedules = functions.schedules(optimizers)
    loss = functions.step_function("loss") if functions.has("loss") else None
    steps = {role: functions.training_step(role, model) for role in functions.steps}
    augment = functions.augment()
    metrics = functions.step_function("metrics") if functions.has("metrics") else None
    metrics_asks = functions.asked("metrics") if metrics is not None else frozenset[str]()
    unseen = exactness.writes_unseen(model, optimizers.values(), [Path(job.code), Path(job.cwd)])
    beside = auxiliary_modules(model, loss=loss, metrics=metrics, **steps)
    statistics = SharedStatistics(ranks)
    if config.sync_bn:
        synchronize([model, *beside.values()], statistics)
    if data.last_total is not None:
        check_shared(config, data.last_total, ranks.size)
    logical = LogicalRanks(model, mine, count, beside)
    streams = RandomStates() if config.rng == "stream" else None
    objectives = build_objectives(
        functions,
        model,
        steps,
        optimizers,
        schedules,
        scaler=lambda: GradScaler(device.type, enabled=config.amp == "fp16"),
        gradients=strategy.gradients,
        finite=lambda role: Finite(config.on_nan, role_line(job, loaded, role), partial(rank.note, level="warning")),
    )
    stateful: dict[str, Stateful] = {"model": strategy.model(model)}
    stateful |= {named("optimizer", name): strategy.optimizer(each) for name, each in optimizers.items()}
    stateful |= {named("schedule", name): Schedule(each) for name, each in schedules.items()}
    for each in objectives:
        if each.scaler.is_enabled():
            stateful[named("scaler", each.role if len(objectives) > 1 else "")] = each.scaler
    if average is not None:
        stateful["ema"] = average
    if beside:
        stateful["beside"] = AuxiliaryModules(beside, unseen)
    checkpoints = strategy.checkpointer(
        job,
        ranks,
        spool,
        open_storage(job.checkpoints, job.uid),
        strategy.contents(stateful, logical, streams, ranks, config.seed, config.weights_from is not None),
        rank.numerics,
        HostCopy(device),
        eager=unseen,
    )
    files = step_files(rank)
    return Training(
        config=config,
        model=model,
        objectives=objectives,
        average=average,
        logical=logical,
        statistics=statistics,
        strategy=strategy,
        loss=loss,
        files=files,
        loss_asks=functions.asked("loss") if loss is not None else frozenset(),
        augment=augment,
        on_epoch=functions.on_epoch(model),
        metrics=Metrics(metrics, metrics_asks, ranks, device, files=files) if metrics is not None else None,
        metrics_asks=metrics_asks,
        rule=BatchRule(model, functions.takes_whole_batch, functions.leaves_loss_to_model),
        precision=precision(config.amp, device),
        train=data,
        validation=batches_of(rank, "validation_data", "validation", filled=strategy.sharded) if validates else None,
        test=batches_of(rank, "test_data", "test", filled=strategy.sharded) if functions.has("test_data") else None,
        device=device,
        ranks=ranks,
        streams=streams,
        generators=OwnGenerators(
            model=model,
            loss=loss,
            metrics=metrics,
            augment=augment,
            **{named("optimizer", name): each for name, each in optimizers.items()},
            average=average,
            **steps,
        ),
        first_epoch=FirstEpoch(job, ranks, spool, rank.code_id, validates),
        checkpoints=checkpoints,
        pace=CadenceTimer(data.per_epoch, config.checkpoint_every, lambda: checkpoints.cost, lambda: checkpoints.busy),
        progress=progress,
        spool=spool,
        instructions=instructions,
        target=Target(job.until, ranks, instructions, progress),
        judgement=Judgement(config, rank.note, FUNCTIONS.way_of(config.metric), advice=_ADVICE, lacking=1),
    )


def step_files(rank: RankContext) -> StepFiles:
    """Return the object that redirects files which the user's step functions write on this rank to a private folder."""
    job, number = rank.job, rank.ranks.rank
    apart = any(tells_ranks_apart(each.read_bytes()) for each in Path(job.code).rglob("*.py"))
    private = attempt_folder(Path(job.home), job.id) / f"rank-{number}.files"
    return StepFiles(os.getcwd(), private, number, rank.note, rank.ranks.size, apart)


def training_batches(rank: RankContext) -> Batches:
    """Return the training data, divided into batches of the configured size, of which this rank reads its shares."""
    return batches_of(rank, "train_data", "sample", training=True)


def batches_of(rank: RankContext, role: str, tag: str, training: bool = False, filled: bool = False) -> Batches:
    """Return the data of the function for `role`, such as `train_data`, in batches of which this rank reads its shares.

    `tag` is part of the seed, so that training and validation data are drawn differently. `training` marks the training
    data. With `filled`, a rank whose share of a batch is empty gets samples of another share.
    """
    config, ranks = rank.config, rank.ranks
    per_rank = shares_of(config.logical_workers or ranks.size, ranks.size)
    mine, count = per_rank[ranks.rank], per_rank[-1].stop
    data, workers = source_of(rank.functions, role, config, training), loader_workers(rank, role)
    size = (data.batch_size or config.batch_size) * (count if config.per_slot_batch else 1)
    parts = (config.accumulate or 1) if training else 1
    data, own = data._replace(batch_size=size), range(mine.start * parts, mine.stop * parts)
    return Batches(
        data,
        size,
        config.seed,
        tag,
        own,
        count * parts,
        workers,
        rank.device,
        rank.note,
        training,
        filled,
        limit=rank.limit_guarantee,
    )


def needs_pairs(model: nn.Module, config: Config) -> bool:
    """Return True if each rank's share of a batch needs two samples or more: BatchNorm cannot train on a single one."""
    return any(isinstance(each, _BatchNorm) for each in model.modules()) and not config.sync_bn


def source_of(functions: Functions, role: str, config: Config, training: bool) -> Source:
    """Return the data that the user's function for `role`, such as `train_data`, returns, with the user's `collate`.

    With `training`, the user's `sampler` is applied, too.
    """
    data = source(functions.result(role), role)
    if collate := functions.collate():
        data = data._replace(collate=collate)
    if training and functions.has("sampler"):
        if data.stream:
            raise InvalidDefinition("train_data() returned a stream, whose samples have no index: leave sampler out")
        data = data._replace(sampler=own_sampler(functions.result("sampler"), data.length))
    return data._replace(drop_last=data.drop_last or (training and config.uneven == "drop"))


def loader_workers(rank: RankContext, role: str) -> int | AutoWorkers:
    """Return the number of processes that load the data of `role`; an AutoWorkers object if it is to be tuned.

    The number is 0 if the role's function has a parameter `model`, as a loader process would have a copy of the model
    that is never trained. Raises InvalidDefinition if `--loader-workers` requests processes for such a function.
    """
    config = rank.config
    if not rank.functions.needs_model(role):
        return rank.loader_workers
    if config.loader_workers:
        raise InvalidDefinition(
            f"{role}() asks for model, and a loader process has a copy of it that is never trained: leave out "
            f"--loader-workers {config.loader_workers}, or write --loader-workers 0"
        )
    return 0


def role_line(job: LaunchSpec, loaded: Loaded, role: str) -> str:
    """Return where the user's function for `role`, such as `loss`, is defined, as text such as `cell [4] line 12`."""
    line = loaded.definition.functions[role].line
    sources = Sources(Path(job.code), Path(job.cwd), loaded.snapshot)
    frame = users_frame(Call(str(Path(job.code) / DEFINITION), line, role), sources)
    return frame.where if frame else f"line {line}"


def steps_known(config: Config, data: Batches) -> dict[str, int]:
    """Return `{"steps": N}` with the training's length in steps, as a parameter for the user's functions.

    The dict is empty if the length is known only once the data, a stream, has been read.
    """
    if config.steps is not None:
        return {"steps": config.steps}
    return {} if data.per_epoch is None else {"steps": config.epochs * data.per_epoch}


def begin(training: Training, numerics: Mapping[str, str], schedules_know_length: bool) -> str | None:
    """Restore the checkpoint to resume from and return its ID. Without one, make the ranks' states equal; return None.

    `numerics` describes what affects rounding, such as library versions; if it differs from that of the checkpoint, the
    user gets a warning. `schedules_know_length` means that a schedule depends on the training's length.
    """
    training.checkpoints.check()
    _must_sample_alike(training)
    manifest = training.checkpoints.restore(schedules_know_length)
    if manifest is None:
        training.strategy.begin(training.model)
        training.logical.share(training.ranks)
        if training.strategy.sharded or training.ranks.rank == 0:
            found = weights(training.model, training.logical.beside, training.strategy.whole())
            training.spool.say(Fact(name="weights", value=found.to_json()))
        if training.streams:
            training.streams.begin(training.config.seed, training.ranks.rank, 0)
        return None
    take_position(training, manifest)
    training.first_epoch.restore(manifest.state["training"].get("first_epoch"))
    if changed := exactness.differences(manifest.numerics, numerics):
        text = f"bits may differ from step {manifest.step + 1} on: {changed}"
        training.spool.say(Note(level="warning", text=text))
    return manifest.id


def _must_sample_alike(training: Training) -> None:
    """Raise InvalidDefinition if a user's sampler returns different indices on different ranks."""
    mine = [data.sampled for data in (training.train, training.validation, training.test) if data is not None]
    if any(each != mine for each in training.ranks.all_gather_object(mine)):
        raise InvalidDefinition(
            "the sampler of a DataLoader gives other indices on each rank: it must give those of all ranks, and each "
            "global batch is shared out then. Leave out what splits them by rank"
        )
