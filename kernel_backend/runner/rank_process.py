"""Run one rank to its exit code: set up its device, connect it to other ranks, load the definition, train."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from kernel_backend.artifacts.run import run
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.model.launch.exit_codes import RELEASED
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.progress import stall_limit
from kernel_backend.model.reports import Fact, Note
from kernel_backend.model.snapshot import DEFINITION
from kernel_backend.runner import plots
from kernel_backend.runner.artifacts import ArtifactWriter
from kernel_backend.runner.batch_size.find import find_batch_size
from kernel_backend.runner.context import FormTraining, RankContext, training_of
from kernel_backend.runner.data.inputs import Released, patience, with_inputs
from kernel_backend.runner.declared_data import DeclaredDataCheck, changes
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import lengths_of, load, read_snapshot
from kernel_backend.runner.definition.prepare_hook import prepared
from kernel_backend.runner.definition.process_check import ProcessCheck, process_check
from kernel_backend.runner.definition.state_check import check_state
from kernel_backend.runner.definition.trackers import SILENT, silence_trackers
from kernel_backend.runner.definition.unsnapshotted import left_behind
from kernel_backend.runner.determinism import exactness, seeds
from kernel_backend.runner.determinism.rank_variables import protected_rank_variables
from kernel_backend.runner.determinism.unrepeatable import unrepeatable
from kernel_backend.runner.first_epoch import code_of, watch_files
from kernel_backend.runner.forked_children import children_end_here
from kernel_backend.runner.forms.command import rank as command
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import choose, connect
from kernel_backend.runner.ranks.timed import TimedRanks
from kernel_backend.runner.timing.clock import CLOCK
from kernel_backend.runner.timing.intercept import install
from kernel_backend.runner.tracer import Tracer
from kernel_backend.runner.trial_writes import TrialWrites
from kernel_backend.runner.warned_lines import warn_of_users_lines


def work(
    job: LaunchSpec, instructions: Instructions, spool: Spool, progress: Progress, watch: Callable[[FormTraining], None]
) -> int:
    """Train the job's trial as one of its ranks; return the exit code: 0 when completed, 85 when it gave up its slot.

    `watch` is called with the training once it has been created, to follow its steps. Raises any error that ends this
    rank: the user's own, InvalidDefinition, or a backend's error when another rank is lost.
    """
    config = job.config
    if config.form == "command":
        return command.work(job, instructions, spool, progress, watch)
    kind = "cpu" if config.device == "cpu" else job.placement[0].kind
    device = exactness.settle(kind, config, int(os.environ.get("LOCAL_RANK", "0")))
    warn_of_users_lines()
    exactness.hear_nondeterminism(partial(_tell_nondeterminism, spool))
    # For draws at a cell's top level: torch's initial seed differs in every process.
    seeds.reseed(seeds.mix(config.seed, "init", "definition"))
    if not spool.speaks:
        silence_trackers()
    code_id = code_of(Path(job.code))
    try:
        snapshot = read_snapshot(Path(job.code))
        job = with_inputs(job, snapshot, instructions, spool, progress, patience(job))
    except Released:
        return RELEASED
    watch_files(job)
    writes = TrialWrites(job, lambda text: spool.say(Note(level="warning", text=text)))
    if spool.speaks and config.search is not None:
        writes.begin()
    progress.tick("loading", 0)
    with protected_rank_variables(lambda text: spool.say(Note(text=text)), also=() if spool.speaks else SILENT):
        process = process_check(Path(job.code)) if spool.speaks else ProcessCheck(None, "")
        loaded = load(Path(job.code), Path(job.cwd), process.cell_begins, job.values, lengths_of(job.config))
    form = form_named(loaded.definition.form)
    # Values of a script do not exist yet, and those of a cell with other constants are others.
    if spool.speaks and not form.whole and not loaded.is_changed:
        check_state(
            loaded,
            Path(job.code),
            Path(job.cwd),
            config.seed,
            note=lambda text: spool.say(Note(text=text)),
            alive=lambda: progress.tick("loading", 0),
            changes=lambda: changes(job, loaded.snapshot),
            strict=not job.rerun,
            process=process.differences(),
        )
    prepared(job, loaded, progress)  # before any rank connects, as it may take long
    progress.tick("connecting", 0)
    choice = choose("torch" if config.strategy == "fsdp2" else config.backend, kind)
    ranks = connect(choice, kind, stall_limit(config.hang_timeout))
    if ranks.size > 1:
        ranks = TimedRanks(ranks)
    batch = job.batch
    if batch is None and config.auto_batch is not None:
        batch = find_batch_size(job, ranks, device, choice.name, instructions, progress)
        if batch is None:
            ranks.close()
            return RELEASED
        spool.say(Note(text=f"tuned: {batch.text(config.per_slot_batch)}"))
    if batch is not None:
        # Each attempt says it, so that an experiment that is a rerun has it, too.
        spool.say(Fact(name="batch", value=batch.to_json()))
        config = config.with_batch_size(batch.size)
        job = job.model_copy(update={"config": config})
    progress.tick("building", 0)
    keep = ArtifactWriter(job, spool, progress) if ranks.rank == 0 else None
    run.begin(keep)
    constants = {"run": run, "device": device, "rank": ranks.rank, "world": ranks.size, "epochs": config.epochs}
    functions = Functions(loaded, job.values, config.seed, constants)
    numerics = exactness.numerics(device, config, ranks.size, choice.name)
    context = RankContext(
        job, loaded, functions, ranks, choice, device, numerics, code_id, instructions, spool, progress
    )
    if not form.whole and (limit := unrepeatable((Path(job.code) / DEFINITION).read_bytes())):
        context.limit_guarantee(limit)
    _start_clock(progress, device)
    tracer = Tracer(progress.folder, job.experiment, instructions, spool, keep, ranks.rank, device)
    progress.listener = tracer.phase
    training: FormTraining = training_of(form, context)
    _keep_plots(job, keep, spool, training)
    if text := left_behind(Path(job.code), Path(job.cwd), loaded.snapshot):
        context.note(text)
    watch(training)
    declared = DeclaredDataCheck(job, loaded.snapshot, spool)
    if ranks.rank == 0:
        declared.start()
    try:
        with children_end_here():
            code = training.train()
        plots.finish()
        tracer.close()
    finally:
        CLOCK.end()
        writes.end()
        progress.tick("finishing", training.step)  # a checkpoint being written must not look like a hang
        training.close()
        declared.close()
    ranks.close()
    return code


def _keep_plots(job: LaunchSpec, keep: ArtifactWriter | None, spool: Spool, training: FormTraining) -> None:
    """Save the plots that the user's code shows as artifacts from now on, if the code seems to draw any."""
    if plots.draws(Path(job.code)):

        def warn(text: str) -> None:
            spool.say(Note(level="warning", text=text))

        plots.begin(plots.Plots(keep, run.folder, lambda: training.step, warn))


def _start_clock(progress: Progress, device: torch.device) -> None:
    timeline = None
    if device.type == "cuda":
        from kernel_backend.runner.timing.device import CudaTimeline

        timeline = CudaTimeline()
    CLOCK.attach(progress.times(), timeline)
    install()


def _tell_nondeterminism(spool: Spool, operation: str) -> None:
    text = f"{operation} has no deterministic implementation in torch: a rerun may give other bits"
    spool.say(Note(level="warning", text=text))
