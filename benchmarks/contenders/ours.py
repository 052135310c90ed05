"""Run Daylight's training loop in this process, without a launcher."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from kernel_backend.artifacts.run import run
from kernel_backend.definition.parse import parse
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import Cadence, Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Share
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import load
from kernel_backend.runner.determinism import exactness
from kernel_backend.runner.first_epoch import code_of
from kernel_backend.runner.forms import functions as form
from kernel_backend.runner.forms.loop import LoopTraining
from kernel_backend.runner.ipc import Instructions, Spool
from kernel_backend.runner.loop import loop
from kernel_backend.runner.loop.training import Training
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import choose, connect

WORK = Path(__file__).with_name("work.py").read_text()
LOOP = """
from contenders import peers, work
def train(run):
    data, net, optimizer = peers.parts(params, batch_size, 0)
    run.restore(model=net, optimizer=optimizer)
    for _ in run.epochs():
        for x, y in run.loader(data.dataset, batch_size=batch_size):
            step()
            optimizer.zero_grad()
            loss = work.loss(net(x), y)
            loss.backward()
            optimizer.step()
            run.report(loss=loss)
"""
LIGHTNING = Path(__file__).with_name("lightning_module.py").read_text()
NEVER = Cadence(seconds=1e9)
FOR_EVER = 10**9
PATIENCE_S = 600.0


def train(step: Any, params: dict[str, Any], **options: Any) -> None:
    """Train the shared model without end by the runner's own loop; no checkpoint is taken."""
    training = build(Path(tempfile.mkdtemp()), WORK, params, steps=FOR_EVER, checkpoint_every=NEVER, **options)
    training.progress = _Telling(training, step)
    loop.train(training)


def train_loop(step: Any, params: dict[str, Any], batch_size: int, workers: int) -> None:
    """Train the shared model without end in a loop of the user's own, `train(run)`, that reports each step."""
    options = {"steps": FOR_EVER, "epochs": FOR_EVER, "checkpoint_every": NEVER, "loader_workers": workers}
    loop_form = LoopTraining(context(Path(tempfile.mkdtemp()), LOOP, {}, **options))
    vars(sys.modules["definition"]).update(step=step, params=params, batch_size=batch_size)
    loop_form.train()


def train_lightning(step: Any, params: dict[str, Any], batch_size: int, workers: int) -> None:
    """Train the shared model without end as a LightningModule."""
    from kernel_backend.runner.forms.lightning.training import LightningTraining

    options = {"steps": FOR_EVER, "checkpoint_every": NEVER, "loader_workers": workers}
    prepared = context(Path(tempfile.mkdtemp()), LIGHTNING, {}, **options)
    vars(sys.modules["definition"]).update(step=step, params=params, batch_size=batch_size, workers=workers)
    LightningTraining(prepared).train()


def build(folder: Path, source: str, params: dict[str, Any], **options: Any) -> Training:
    """Build the training of a definition, as rank RANK of WORLD_SIZE, before its first step."""
    prepared = context(folder, source, params, **options)
    training = form.build(prepared)
    form.begin(training, prepared.numerics, prepared.functions.schedules_know_length)
    return training


def context(folder: Path, source: str, params: dict[str, Any], **options: Any) -> RankContext:
    """Build the context of a rank (RANK of WORLD_SIZE) in which a definition of any form is trained."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    job = a_job(folder, source, params, slots=size, **options)
    kind = "cuda" if torch.cuda.is_available() and job.config.device == "auto" else "cpu"
    device = exactness.settle(kind, job.config, rank)
    choice = choose(job.config.backend, kind)
    ranks = connect(choice, kind, PATIENCE_S)
    constants = {"run": run, "device": device, "rank": rank, "world": size, "epochs": job.config.epochs}
    loaded = load(Path(job.code), folder)
    functions = Functions(loaded, job.params, job.config.seed, constants)
    numerics = exactness.numerics(device, job.config, size, choice.name)
    spool, progress = Spool(folder / "spool.jsonl", rank), Progress(folder, rank)
    code = code_of(Path(job.code))
    return RankContext(job, loaded, functions, ranks, choice, device, numerics, code, Instructions(), spool, progress)


def a_job(folder: Path, source: str, params: dict[str, Any], **options: Any) -> LaunchSpec:
    """Create an attempt's folder with the definition; checkpoints will be saved there too."""
    code = folder / "code"
    code.mkdir(parents=True, exist_ok=True)
    (code / "definition.py").write_text(source)
    config = Config.model_validate({"threads": 1, "batch_size": 32} | options)
    return LaunchSpec(
        experiment=1,
        trial=1,
        attempt=1,
        config=config,
        params=parse(source).bind(params),
        placement=(Share(node="here", kind="cpu", address="127.0.0.1", slots=tuple(range(config.slots))),),
        python=sys.executable,
        cwd=str(folder),
        code=str(code),
        snapshot="0" * 64,
        checkpoints=str(folder / "checkpoints"),
        home=str(folder),
    )


def an_attempt(job: LaunchSpec) -> AttemptFolder:
    """Return the folder of an attempt, ready for its ranks."""
    folder = AttemptFolder(Path(job.home) / "attempts" / str(job.id))
    folder.prepare(job, "no token")
    return folder


class _Telling(Progress):
    """Progress that also calls a function at the beginning of each step."""

    def __init__(self, training: Training, step: Any) -> None:
        super().__init__(Path(tempfile.mkdtemp()), training.ranks.rank)
        self._step = step

    def tick(self, phase: Any, step: int) -> None:
        """Note that a step begins, or that another phase does."""
        super().tick(phase, step)
        if phase in ("first step", "step"):
            self._step()
