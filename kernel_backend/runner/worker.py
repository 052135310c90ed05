"""One rank from its job to its exit code: devices, peers, definition, training."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.job import Job
from kernel_backend.model.reports import Started
from kernel_backend.runner.checkpointing import Checkpointer
from kernel_backend.runner.data import Batches, source
from kernel_backend.runner.functions import BatchRule, Functions
from kernel_backend.runner.link import Instructions, Spool
from kernel_backend.runner.load import load
from kernel_backend.runner.loop import Training, train
from kernel_backend.runner.pace import Pace
from kernel_backend.runner.ranks import Choice, Ranks, choose, connect
from kernel_backend.runner.reducer import reducer
from kernel_backend.runner.validation import share


def work(job: Job, instructions: Instructions, spool: Spool, watch: Callable[[Training], None]) -> int:
    """Train the job's trial as one of its ranks; the exit code, 0 or 85. `watch` is given the training once it exists.

    Raises whatever ends this rank: the user's own errors, InvalidDefinition, a backend's error when a peer is lost.
    """
    kind = job.placement[0].kind
    device = settle(kind, job.config.threads or 1, int(os.environ.get("LOCAL_RANK", "0")))
    loaded = load(Path(job.code), Path(job.cwd))
    choice = choose(job.config.backend, kind)
    ranks = connect(choice, kind)
    constants = {"device": device, "rank": ranks.rank, "world": ranks.size, "epochs": job.config.epochs}
    functions = Functions(loaded, job.params, job.config.seed, constants)
    training = build(job, functions, ranks, device, instructions, spool)
    watch(training)
    resumed = begin(training)
    spool.say(started(training, choice, resumed))
    code = train(training)
    ranks.close()
    return code


def settle(kind: str, threads: int, local_rank: int) -> torch.device:
    """The device of this rank, and torch set up so that equal inputs give equal bits on it."""
    torch.set_num_threads(threads)
    with contextlib.suppress(RuntimeError):  # it can be set once in a process, before the first parallel work
        torch.set_num_interop_threads(1)
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise InvalidRequest(
                f"the slots here are GPUs, and torch {torch.__version__} of {sys.executable} cannot use them: install "
                "a CUDA build of torch, or start the service with CUDA_VISIBLE_DEVICES= for CPU slots"
            )
        # A launcher may show each rank its own device alone, or all of them.
        index = local_rank % torch.cuda.device_count()
        torch.cuda.set_device(index)
        return torch.device("cuda", index)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return torch.device("cpu")


def build(
    job: Job,
    functions: Functions,
    ranks: Ranks,
    device: torch.device,
    instructions: Instructions,
    spool: Spool,
) -> Training:
    """The training as the definition describes it, at step 0; raises InvalidDefinition."""
    seed, size = job.config.seed, job.config.batch_size

    def batches(role: str, tag: str) -> Batches:
        return Batches(source(functions.result(role), role), size, seed, tag, ranks.rank, ranks.size)

    data = batches("train_data", "sample")
    functions.know(steps=job.config.epochs * data.per_epoch)
    model = functions.model().to(device)
    optimizer = functions.optimizer(model)
    return Training(
        model=model,
        optimizer=optimizer,
        gradients=reducer(model, ranks),
        loss=functions.step_function("loss"),
        metrics=functions.step_function("metrics") if functions.has("metrics") else None,
        rule=BatchRule(model),
        train=data,
        validation=batches("validation_data", "validation") if functions.has("validation_data") else None,
        device=device,
        ranks=ranks,
        checkpoints=Checkpointer(job, ranks, spool, model, optimizer),
        pace=Pace(data.per_epoch, job.config.checkpoint_every),
        spool=spool,
        instructions=instructions,
        seed=seed,
        epochs=job.config.epochs,
    )


def begin(training: Training) -> str | None:
    """Put all ranks at the same place: a checkpoint's, or rank 0's own beginning. The checkpoint's id, if one."""
    manifest = training.checkpoints.restore()
    if manifest is None:
        share([*training.model.parameters(), *training.model.buffers()], training.ranks)
        return None
    training.step = manifest.step
    return manifest.id


def started(training: Training, choice: Choice, resumed: str | None) -> Started:
    """What the ranks are, for whoever watches."""
    alone = training.ranks.size == 1
    runtime = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if training.device.type == "cuda" else "cpu",
        "threads": str(torch.get_num_threads()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    return Started(
        backend=choice.name,
        reason=f"{choice.reason}; one slot has nobody to talk to" if alone else choice.reason,
        world=training.ranks.size,
        steps_per_epoch=training.train.per_epoch,
        total_steps=training.total_steps,
        parameters=sum(each.numel() for each in training.model.parameters()),
        resumed_from=resumed,
        runtime=runtime,
    )
