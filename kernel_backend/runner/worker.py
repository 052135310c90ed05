"""Run one rank from its launch spec to its exit code: devices, peers, definition, training."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.amp import GradScaler

from kernel_backend.artifacts.run import run
from kernel_backend.checkpoints.storage import open_storage
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.frames import Call, Sources, users_frame
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.progress import stall_limit
from kernel_backend.model.reports import Fact, Note, Started
from kernel_backend.runner.artifacts import ArtifactWriter
from kernel_backend.runner.checkpoint.checkpointer import Checkpointer
from kernel_backend.runner.checkpoint.contents import TrainingContents
from kernel_backend.runner.checkpoint.ema import WeightAverage
from kernel_backend.runner.checkpoint.saving import HostCopy
from kernel_backend.runner.checkpoint.stateful import Model, Optimizer, Schedule, Stateful
from kernel_backend.runner.data import Batches, source
from kernel_backend.runner.declared_data import DeclaredDataCheck, changes
from kernel_backend.runner.definition.auxiliary_modules import AuxiliaryModules, auxiliary_modules
from kernel_backend.runner.definition.functions import BatchRule, Functions, parts_of
from kernel_backend.runner.definition.load import MODULE, Loaded, load
from kernel_backend.runner.definition.prepare_hook import prepared
from kernel_backend.runner.definition.process_check import ProcessCheck, process_check
from kernel_backend.runner.definition.state_check import check_state
from kernel_backend.runner.definition.trackers import SILENT, silence_trackers
from kernel_backend.runner.definition.unsnapshotted import left_behind
from kernel_backend.runner.determinism import exactness, seeds
from kernel_backend.runner.determinism.digests import weights
from kernel_backend.runner.determinism.generators import OwnGenerators
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.determinism.rank_variables import protected_rank_variables
from kernel_backend.runner.first_epoch import FirstEpoch, code_of, watch_files
from kernel_backend.runner.gradients.reducer import Gradients, OwnGradients, Parameters, SummedGradients
from kernel_backend.runner.gradients.tree import TreeGradients, shares_of
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.logical_ranks import LogicalRanks
from kernel_backend.runner.loop.cadence import CadenceTimer
from kernel_backend.runner.loop.finite import Finite
from kernel_backend.runner.loop.loop import train
from kernel_backend.runner.loop.objective import build_objectives, named
from kernel_backend.runner.loop.target import Target
from kernel_backend.runner.loop.training import Training
from kernel_backend.runner.metrics.sums import share
from kernel_backend.runner.metrics.whole_set import Metrics
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Choice, Ranks, choose, connect

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def work(
    job: LaunchSpec, instructions: Instructions, spool: Spool, progress: Progress, watch: Callable[[Training], None]
) -> int:
    """Train the job's trial as one of its ranks and return the exit code, 0 or 85.

    `watch` is given the training once it exists. Raises whatever ends this rank: the user's own errors,
    InvalidDefinition, a backend's error when a peer is lost.
    """
    config = job.config
    kind = "cpu" if config.device == "cpu" else job.placement[0].kind
    device = exactness.settle(kind, config, int(os.environ.get("LOCAL_RANK", "0")))
    exactness.hear_nondeterminism(partial(_tell_nondeterminism, spool))
    # For draws at a cell's top level: torch's initial seed differs in every process.
    seeds.reseed(seeds.mix(config.seed, "init", "definition"))
    if not spool.speaks:
        silence_trackers()
    code_id = code_of(Path(job.code))
    watch_files(job)
    with protected_rank_variables(lambda text: spool.say(Note(text=text)), also=() if spool.speaks else SILENT):
        process = process_check(Path(job.code)) if spool.speaks else ProcessCheck(None, "")
        loaded = load(Path(job.code), Path(job.cwd), process.cell_begins)
    if spool.speaks:
        check_state(
            loaded,
            Path(job.code),
            Path(job.cwd),
            config.seed,
            note=lambda text: spool.say(Note(text=text)),
            alive=lambda: progress.tick("starting", 0),
            changes=lambda: changes(job, loaded.snapshot),
            strict=not job.rerun,
            process=process.differences(),
        )
    prepared(job, loaded, progress)  # before any rank waits for a peer: it may take long
    choice = choose(config.backend, kind)
    ranks = connect(choice, kind, stall_limit(config.hang_timeout))
    run.begin(ArtifactWriter(job, spool, progress) if ranks.rank == 0 else None)
    constants = {"run": run, "device": device, "rank": ranks.rank, "world": ranks.size, "epochs": config.epochs}
    functions = Functions(loaded, job.params, config.seed, constants)
    numerics = exactness.numerics(device, config, ranks.size, choice.name)
    training = build(job, loaded, functions, ranks, device, numerics, code_id, instructions, spool, progress)
    if text := left_behind(Path(job.code), Path(job.cwd), loaded.snapshot):
        spool.say(Note(text=text))
    watch(training)
    declared = DeclaredDataCheck(job, loaded.snapshot, spool)
    if ranks.rank == 0:
        declared.start()
    try:
        resumed = begin(training, numerics)
        guarantee = exactness.guarantee(config, ranks.size, device, functions.asks_rank, training.generators.ways)
        if training.train.is_stream and functions.needs_model("train_data"):
            guarantee = "none: train_data() reads a stream with the model, one batch ahead of the steps"
        spool.say(started(training, choice, resumed, numerics | exactness.libraries(device, choice.name), guarantee))
        code = train(training)
    finally:
        progress.tick("finishing", training.step)  # a checkpoint being written must not look like a hang
        training.checkpoints.close()
        training.first_epoch.close()
        declared.close()
        training.train.close()
        if training.validation is not None:
            training.validation.close()
    ranks.close()
    return code


def build(
    job: LaunchSpec,
    loaded: Loaded,
    functions: Functions,
    ranks: Ranks,
    device: torch.device,
    numerics: dict[str, str],
    code_id: str,
    instructions: Instructions,
    spool: Spool,
    progress: Progress,
) -> Training:
    """Build the training that the definition describes, at step 0; raise InvalidDefinition."""
    config = job.config
    everyones = shares_of(config.logical_workers or ranks.size, ranks.size)
    mine, count = everyones[ranks.rank], everyones[-1].stop

    def note(text: str) -> None:
        spool.say(Note(text=text))

    def batches(role: str, tag: str, digested: bool = False) -> Batches:
        data, workers = source(functions.result(role), role), loader_workers(config, functions, role)
        return Batches(data, config.batch_size, config.seed, tag, mine, count, workers, device, note, digested)

    validates = functions.has("validation_data")
    if config.search is not None and not validates:
        raise InvalidDefinition("a search compares validations, and there is no validation_data(): write that function")
    data = batches("train_data", "sample", digested=True)
    functions.know(**steps_known(config, data))
    model = functions.model().to(device)
    functions.know(**parts_of(model))
    if any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in model.modules()):
        data.keep_pairs()
    average = WeightAverage(model, config.ema) if config.ema is not None else None
    optimizers = functions.optimizers(model)
    schedules = functions.schedules(optimizers)
    loss = functions.step_function("loss") if functions.has("loss") else None
    steps = {role: functions.training_step(role, model) for role in functions.steps}
    metrics = functions.step_function("metrics") if functions.has("metrics") else None
    metrics_asks = functions.asked("metrics") if metrics is not None else frozenset[str]()
    unseen = exactness.writes_unseen(model, optimizers.values(), [Path(job.code), Path(job.cwd)])
    beside = auxiliary_modules(model, loss=loss, metrics=metrics, **steps)
    logical = LogicalRanks(model, mine, count, beside)
    streams = RandomStates() if config.rng == "stream" else None
    objectives = build_objectives(
        functions,
        model,
        steps,
        optimizers,
        schedules,
        scaler=lambda: GradScaler(device.type, enabled=config.amp == "fp16"),
        gradients=partial(gradients, config, ranks, everyones),
        finite=lambda role: Finite(config.on_nan == "fail", role_line(job, loaded, role)),
    )
    stateful: dict[str, Stateful] = {"model": Model(model)}
    stateful |= {named("optimizer", name): Optimizer(each) for name, each in optimizers.items()}
    stateful |= {named("schedule", name): Schedule(each) for name, each in schedules.items()}
    for each in objectives:
        if each.scaler.is_enabled():
            stateful[named("scaler", each.role if len(objectives) > 1 else "")] = each.scaler
    if average is not None:
        stateful["ema"] = average
    if beside:
        stateful["beside"] = AuxiliaryModules(beside, unseen)
    checkpoints = Checkpointer(
        job,
        ranks,
        spool,
        open_storage(job.checkpoints, job.uid),
        TrainingContents(stateful, logical, streams, ranks, config.seed),
        numerics,
        HostCopy(device),
        eager=unseen,
    )
    return Training(
        config=config,
        model=model,
        objectives=objectives,
        average=average,
        logical=logical,
        loss=loss,
        loss_asks=functions.asked("loss") if loss is not None else frozenset(),
        metrics=Metrics(metrics, metrics_asks, ranks, device) if metrics is not None else None,
        metrics_asks=metrics_asks,
        rule=BatchRule(model),
        precision=precision(config, device),
        train=data,
        validation=batches("validation_data", "validation") if validates else None,
        device=device,
        ranks=ranks,
        streams=streams,
        generators=OwnGenerators(
            model=model,
            loss=loss,
            metrics=metrics,
            **{named("optimizer", name): each for name, each in optimizers.items()},
            average=average,
            **steps,
        ),
        first_epoch=FirstEpoch(job, ranks, spool, code_id, validates),
        checkpoints=checkpoints,
        pace=CadenceTimer(data.per_epoch, config.checkpoint_every, lambda: checkpoints.cost, lambda: checkpoints.busy),
        progress=progress,
        spool=spool,
        instructions=instructions,
        target=Target(job.until, ranks, instructions, progress),
    )


def loader_workers(config: Config, functions: Functions, role: str) -> int | None:
    """Return the number of loader processes for a role's samples; None: chosen to suit the data.

    It is 0 if the role takes the model, as a process would have a copy that is never trained. Raises InvalidDefinition
    if some were requested for such a role.
    """
    if not functions.needs_model(role):
        return config.loader_workers
    if config.loader_workers:
        raise InvalidDefinition(
            f"{role}() asks for model, and a loader process has a copy of it that is never trained: leave out "
            f"--loader-workers {config.loader_workers}, or write --loader-workers 0"
        )
    return 0


def role_line(job: LaunchSpec, loaded: Loaded, role: str) -> str:
    """Return where a role's function is written, as `cell [4] line 12`."""
    line = loaded.definition.functions[role].line
    sources = Sources(Path(job.code), Path(job.cwd), loaded.snapshot)
    frame = users_frame(Call(str(Path(job.code) / f"{MODULE}.py"), line, role), sources)
    return frame.where if frame else f"line {line}"


def gradients(
    config: Config, ranks: Ranks, everyones: list[range], parameters: Parameters, scaler: GradScaler, name: str
) -> Gradients:
    """Choose the gradient sum: a tree for logical workers, none for a single rank, else the backend's ring."""
    if config.logical_workers is not None:
        return TreeGradients(parameters, scaler, ranks, everyones, named("tree", name))
    if ranks.size == 1:
        return OwnGradients(parameters, scaler)
    return SummedGradients(parameters, scaler, ranks, named("gradients", name))


def precision(config: Config, device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Return a factory of contexts for forward passes: `torch.autocast` with `--amp`, else contexts without effect."""
    if config.amp is None:
        return nullcontext
    return partial(torch.autocast, device.type, _TYPES[config.amp])


def steps_known(config: Config, data: Batches) -> dict[str, int]:
    """Return the loop value `steps`, if it can be computed before a first pass over the data."""
    if config.steps is not None:
        return {"steps": config.steps}
    return {} if data.per_epoch is None else {"steps": config.epochs * data.per_epoch}


def begin(training: Training, numerics: dict[str, str]) -> str | None:
    """Restore a checkpoint, or share rank 0's initial state, on all ranks; return the checkpoint's id, if any."""
    training.checkpoints.check()
    _must_sample_alike(training)
    manifest = training.checkpoints.restore()
    if manifest is None:
        share(list(training.model.parameters()), training.ranks)
        training.logical.share(training.ranks)
        if training.ranks.rank == 0:
            found = weights(training.model, training.logical.beside)
            training.spool.say(Fact(name="weights", value=found.to_json()))
        if training.streams:
            training.streams.begin(training.config.seed, training.ranks.rank, 0)
        return None
    facts = manifest.state["training"]
    training.step = training.began = manifest.step
    training.best, training.validated = facts["best"], facts["validated"]
    training.passes, training.validation_metrics = facts.get("passes", 0), dict(manifest.metrics)
    training.current = max(0, training.passes - (not training.validated))
    training.train.restore(facts["data"])
    training.first_epoch.restore(facts.get("first_epoch"))
    total = training.total_steps
    training.over = facts["over"] if total is None else training.step >= total
    if changed := exactness.differences(manifest.numerics, numerics):
        text = f"bits may differ from step {manifest.step + 1} on: {changed}"
        training.spool.say(Note(level="warning", text=text))
    return manifest.id


def started(
    training: Training, choice: Choice, resumed: str | None, numerics: dict[str, str], guarantee: str
) -> Started:
    """Return the `Started` report: backend, number of ranks, steps, parameters and reproducibility guarantee."""
    alone = training.ranks.size == 1
    return Started(
        backend=choice.name,
        reason=f"{choice.reason}; one slot communicates with no other" if alone else choice.reason,
        world=training.ranks.size,
        steps_per_epoch=training.train.per_epoch,
        total_steps=training.total_steps,
        parameters=sum(each.numel() for each in training.model.parameters()),
        guarantee=guarantee,
        resumed_from=resumed,
        runtime=numerics,
    )


def _must_sample_alike(training: Training) -> None:
    """Raise InvalidDefinition if a user's sampler gives each rank different indices."""
    mine = [data.sampled for data in (training.train, training.validation) if data is not None]
    if any(each != mine for each in training.ranks.all_gather_object(mine)):
        raise InvalidDefinition(
            "the sampler of a DataLoader gives other indices on each rank: it must give those of all ranks, and each "
            "global batch is shared out then. Leave out what splits them by rank"
        )


def _tell_nondeterminism(spool: Spool, operation: str) -> None:
    text = f"{operation} has no deterministic implementation in torch: a rerun may give other bits"
    spool.say(Note(level="warning", text=text))
