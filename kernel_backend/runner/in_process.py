"""Train in the notebook's own process, without the service, other processes or restarts; reports are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from kernel_backend.artifacts.run import run
from kernel_backend.definition.forms.registry import form_named
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note, Report
from kernel_backend.runner import failure
from kernel_backend.runner.artifacts import ArtifactWriter
from kernel_backend.runner.context import FormTraining, RankContext, training_of
from kernel_backend.runner.data.inputs import with_inputs
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import load, read_snapshot
from kernel_backend.runner.definition.prepare_hook import prepared
from kernel_backend.runner.determinism import exactness, seeds
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.runner.first_epoch import code_of
from kernel_backend.runner.ipc import Instructions, Said, Spool
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Choice, SingleRank


class LocalTraining(FormTraining, Protocol):
    """Training that can also run in the notebook's own process, and then returns the trained models to it."""

    def models(self, best: bool) -> nn.Module | dict[str, nn.Module]:
        """Return the trained modules: one, or several by name.

        With `best`, they have the weights of the best validation if these were kept, else the newest weights.
        """


class PrintedSpool(Spool):
    """Writer of a training's records that prints reports and notes in the notebook, and drops all other records."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        super().__init__(path, rank=0)
        self._tell = tell

    def _write(self, record: Said) -> None:
        if isinstance(record, Report):
            values = "  ".join(f"{name} {value:.6g}" for name, value in record.metrics.items())
            self._tell(f"{record.kind} at step {record.step} (epoch {record.epoch:.4g}): {values}")
        elif isinstance(record, Note):
            self._tell(f"{record.level}: {record.text}")


def train_in_process(job: LaunchSpec, folder: Path, tell: Callable[[str], None]) -> Any:
    """Train a job's trial in this process and return its models.

    Files of the training are written below `folder`; `tell` prints a line. On an interrupt (Ctrl-C), training ends and
    the models are returned as they are then. Raises InvalidDefinition, and the user's own errors with a note that names
    cell and line.
    """
    with _process_as_before(Path(job.code)):
        try:
            return _trained(job, folder, tell)
        except Exception as error:
            described = failure.describe(error, 0, None, Path(job.code), Path(job.cwd), read_snapshot(Path(job.code)))
            if described.frames:
                error.add_note(f"raised in {described.frames[-1].where}")
            raise


def _trained(job: LaunchSpec, folder: Path, tell: Callable[[str], None]) -> Any:
    config = job.config
    device = exactness.settle(job.placement[0].kind, config, 0)
    seeds.reseed(seeds.mix(config.seed, "init", "definition"))
    spool, progress, ranks = PrintedSpool(folder / "spool.jsonl", tell), Progress(folder, 0), SingleRank()
    job = with_inputs(job, read_snapshot(Path(job.code)), Instructions(), spool, progress)
    loaded = load(Path(job.code), Path(job.cwd), params=job.values)
    prepared(job, loaded, progress)
    run.begin(ArtifactWriter(job, spool, progress))
    constants = {"run": run, "device": device, "rank": 0, "world": 1, "epochs": config.epochs}
    functions = Functions(loaded, job.values, config.seed, constants)
    choice = Choice("torch", "in the notebook's process")
    numerics = exactness.numerics(device, config, 1, choice.name)
    code = code_of(Path(job.code))
    context = RankContext(
        job, loaded, functions, ranks, choice, device, numerics, code, Instructions(), spool, progress
    )
    training: LocalTraining = training_of(form_named(loaded.definition.form), context)
    try:
        training.train()
        best = True
    except KeyboardInterrupt:
        tell(f"interrupted at step {training.step}: the weights are those of that step")
        best = False
    finally:
        training.close()
    return training.models(best)


@contextmanager
def _process_as_before(code: Path) -> Iterator[None]:
    """Restore the process's state after the `with` block in which a training ran.

    This covers random states, torch's settings, the module search path and the user's `run` object. Modules imported
    from the folder `code` are forgotten.
    """
    path, before, threads = list(sys.path), dict(vars(run)), torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with ExitStack() as stack:
        stack.enter_context(RandomStates().aside())
        try:
            yield
        finally:
            sys.path[:] = path
            for name, module in list(sys.modules.items()):
                if str(getattr(module, "__file__", None) or "").startswith(f"{code}/"):
                    del sys.modules[name]
            vars(run).update(before)
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic, warn_only=warns)
            torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
