"""Try batch sizes in a separate process: `python -m kernel_backend.runner.batch_size.bench`, run by a rank.

The process reads lines of JSON from stdin, and answers each with a line of JSON on stdout. The first line is a `Task`,
whose answer says which sizes may be tried. Each further line is a batch size, in the unit of `--batch-size`; its answer
says whether training steps with it fit into memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from kernel_backend.artifacts.run import run
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.record import Record
from kernel_backend.model.versions import read
from kernel_backend.parent_death import die_with
from kernel_backend.runner.batch_size.lone_rank import LoneRank
from kernel_backend.runner.batch_size.memory import is_exhausted, limit_memory
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.data import Batch
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import lengths_of, load
from kernel_backend.runner.definition.trackers import silence_trackers
from kernel_backend.runner.determinism import exactness, seeds
from kernel_backend.runner.forms.functions import build, needs_pairs, source_of, training_batches
from kernel_backend.runner.gradients.reducer import ControlFlags
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.loop.loop import summed
from kernel_backend.runner.loop.training import Training
from kernel_backend.runner.metrics.sums import Sums
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Choice

STEPS = 2  # the first creates what optimizers hold, and the second has it beside its gradients


class Task(Record):
    """First message to a process that tries batch sizes: the rank to stand in for, and the memory it may use."""

    job: LaunchSpec
    rank: int
    size: int
    local_rank: int
    backend: str
    free: int  # bytes of main memory that it may use


class Answer(Record):
    """Reply of a process that tries batch sizes.

    The reply to a `Task` says which sizes may be tried (`samples`, `limit`, or a `refusal`). The reply to a batch size
    says in `fits` whether training steps with that size stay within memory.
    """

    fits: bool = True
    problem: str = ""  # the error of the user's code that ended it, if memory did not
    refusal: str = ""  # why this definition has no batch size that could be found
    samples: int | None = None  # of the training data; None: not known
    limit: int = 0  # bytes of memory of which all but a margin may be used


class Bench:
    """One rank's training, run alone to measure its memory; other ranks, checkpoints and reports are not involved."""

    def __init__(self, task: Task, folder: Path) -> None:
        """Import the user's code and create its training data; files of the training go to `folder`."""
        # Neither the trial's checkpoints nor the files of its attempt are touched.
        config = task.job.config.model_copy(update={"loader_workers": 0})
        own = {"config": config, "home": str(folder), "checkpoints": str(folder / "checkpoints")}
        self._job = task.job.model_copy(update=own)
        kind = "cpu" if config.device == "cpu" else self._job.placement[0].kind
        device = exactness.settle(kind, config, task.local_rank)
        seeds.reseed(seeds.mix(config.seed, "init", "definition"))
        silence_trackers()
        loaded = load(
            Path(self._job.code), Path(self._job.cwd), params=self._job.values, lengths=lengths_of(self._job.config)
        )
        run.begin(None)
        self.limit = limit_memory(device, task.free)
        constants = {
            "run": run, "device": device, "rank": task.rank, "world": task.size, "epochs": config.epochs,
        }  # fmt: skip
        self._context = RankContext(
            job=self._job,
            loaded=loaded,
            functions=Functions(loaded, self._job.values, config.seed, constants),
            ranks=LoneRank(task.rank, task.size, task.local_rank),
            choice=Choice(task.backend, ""),
            device=device,
            numerics={},
            code_id="",
            instructions=Instructions(),
            spool=Spool(folder / "spool.jsonl", rank=1),  # which writes nothing
            progress=Progress(folder, task.rank),
        )
        self.data = source_of(self._context.functions, "train_data", config, training=True)
        self._run: Training | None = None

    def steps(self, size: int) -> None:
        """Take `STEPS` training steps on a first batch of `size` samples.

        Raises whatever error the steps raise, including that of exhausted memory.
        """
        job = self._job.model_copy(update={"config": self._job.config.with_batch_size(size)})
        context = replace(self._context, job=job)
        training = self._run = self._run or build(context)
        training.config, training.train = context.config, training_batches(context)
        if needs_pairs(training.model, context.config):
            training.train.keep_pairs()
        copies: list[Tensor] = []
        for _ in range(STEPS):
            with training.files.aside():
                _step(training, next(training.train.steps(0, 1)))
            if context.device.type == "cpu":  # a checkpoint holds a copy in main memory while training goes on
                copies = [each.clone() for each in _state(training)]
        if context.device.type == "cuda":
            torch.cuda.synchronize(context.device)
        del copies


def _step(training: Training, shares: list[Batch]) -> None:
    """Take one training step on `shares`, the parts of a batch, to use as much memory as a real step.

    Unlike `loop.take_step` it leaves out learning rate schedules and everything else that depends on the length of the
    training.
    """
    for objective in training.objectives:
        summed(training, objective, shares, ControlFlags(), Sums(), None)
        if training.config.clip is not None:
            nn.utils.clip_grad_norm_(objective.clipped, training.config.clip)
        for optimizer in objective.optimizers.values():
            optimizer.step()  # without the scaler of --amp fp16, which may skip the first steps
    training.logical.take(training.logical.mine.start)
    if training.average is not None:
        training.average.update(training.model)


def _state(training: Training) -> list[Tensor]:
    """Return the tensors that a checkpoint of this training would hold: those of models and optimizers."""
    modules = [training.model] if training.average is None else [training.model, training.average.module]
    held = [tensor for module in modules for tensor in module.state_dict().values() if isinstance(tensor, Tensor)]
    states = [
        state
        for objective in training.objectives
        for optimizer in objective.optimizers.values()
        for state in optimizer.state.values()
    ]
    return held + [each for state in states for each in state.values() if isinstance(each, Tensor)]


def _tried(bench: Bench, size: int) -> Answer:
    try:
        bench.steps(size)
    except Exception as error:
        return Answer(fits=False, problem="" if is_exhausted(error) else _named(error))
    return Answer()


def _opened(task: Task, folder: Path) -> tuple[Bench | None, Answer]:
    try:
        bench = Bench(task, folder)
    except Exception as error:
        return None, Answer(fits=False, problem="" if is_exhausted(error) else _named(error))
    if bench.data.batch_size is not None:
        refusal = (
            "--batch-size auto is for a dataset, and train_data() returned a DataLoader, which has a batch size of its "
            "own: return its dataset, or leave --batch-size auto out"
        )
        return None, Answer(fits=False, refusal=refusal)
    return bench, Answer(samples=None if bench.data.stream else bench.data.length, limit=bench.limit)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def main() -> None:
    """Answer the requests on stdin until it is closed, or until a batch size does not fit into memory.

    A step that failed may still hold memory, so the process ends and a new one tries the next size.
    """
    die_with(os.getppid())
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "wb")
    with open(os.devnull) as nothing:  # the user's code may read and print, but must not touch these pipes
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def answer(found: Answer) -> None:
        answers.write(found.model_dump_json().encode() + b"\n")
        answers.flush()

    with tempfile.TemporaryDirectory(prefix="daylight-batch-size-") as folder:
        bench, found = _opened(read(Task, json.loads(questions.readline())), Path(folder))
        answer(found)
        for line in questions if bench is not None else ():
            assert bench is not None
            found = _tried(bench, int(line))
            answer(found)
            if not found.fits:
                break


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # threads of the user's code must not keep it alive
