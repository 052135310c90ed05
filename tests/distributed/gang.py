"""Run real gangs for tests: a trial in a folder, its attempts as rank processes, and their results."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from warm import HOME, WarmGang

from kernel_backend.checkpoints.base import Manifest
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import load_model
from kernel_backend.definition.parse import parse
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import Config, parse_cadence
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Committed, Note, Report, SpoolRecord, Started
from kernel_backend.model.resources import Share
from kernel_backend.model.trial import Failure
from tests.support.builders import snapshot
from tests.support.patience import starvation
from tests.support.spools import read_after

PATIENCE_S = 120  # until a gang that does not end is a failed test
GRACE_S = 60  # in which ranks end by themselves after the death of a peer

# A training that a test kills, or tells something, stands still at some step: however late that comes, there it is.
# At which one is where a link leads to: no file is opened for that, which would be told as one of the training's. The
# counter is written by `globals()`, as state that a function keeps from batch to batch would be told, too.
STAND = """
import os
import time
taken = 0
def stand():
    globals()["taken"] = taken + torch.is_grad_enabled()
    while held():
        time.sleep(0.01)
def held():
    try:
        return taken > int(os.readlink("hold"))
    except OSError:
        return False
"""
DIGITS = f"""
import time
import torch
from torch import nn
{STAND}
def dataset():
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(90, 16, generator=generator)
    return torch.utils.data.TensorDataset(x, (x[:, :4].sum(1) > 0).long())
def train_data(dataset): return torch.utils.data.Subset(dataset, range(70))
def validation_data(dataset): return torch.utils.data.Subset(dataset, range(70, 90))
def model(width=24, dropout=0.2):
    return nn.Sequential(
        nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2)
    )
def optimizer(params, lr=1e-2): return torch.optim.AdamW(params, lr=lr)
def loss(output, target, pause=0.0):
    time.sleep(pause)
    stand()
    return nn.functional.cross_entropy(output, target)
def metrics(output, target): return {{"accuracy": (output.argmax(1) == target).float()}}
"""
# A program with a training loop of its own: 12 steps in two epochs.
LOADER_LOOP = f"""
import torch
{STAND}
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(70, 16)
data = TensorDataset(x, (x[:, :4].sum(1) > 0).long())
model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(2):
    total = 0.0
    for i, (a, b) in enumerate(DataLoader(data, batch_size=12, shuffle=True)):
        stand()
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {{epoch}} loss {{total / (i + 1)!r}}")
if __name__ == "__main__":
    print("weights", sum(each.double().sum().item() for each in model.parameters()))
"""


@dataclasses.dataclass
class Trial:
    """Trial in `folder`, all attempts of which train the same snapshot."""

    folder: Path
    source: str = DIGITS
    slots: int = 2
    kind: str = "cpu"
    backend: str = "torch"
    epochs: int = 2
    batch_size: int = 12
    every: str = "1000h"  # never by the clock: a slow machine has the checkpoints of a fast one
    until: int | None = None  # where the next attempt asks how to go on
    params: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # more fields of Config
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)  # what travels beside the definition
    described: dict[str, Any] = dataclasses.field(default_factory=dict)  # more fields of the snapshot
    batch: BatchSize | None = None  # that an earlier attempt has found
    attempts: int = 0
    checkpoints: Path | None = None
    service_home: Path = HOME  # where its forkserver is found
    uid: str = ""  # by which what the home keeps of a trial is its own: trials of other tests have the same number

    def __post_init__(self) -> None:
        self.checkpoints = self.checkpoints or self.folder / "checkpoints"
        code = self.folder / "code"
        code.mkdir(parents=True)
        (code / "definition.py").write_text(self.source)
        described = snapshot(self.source).model_copy(update=self.described)
        (code / "snapshot.json").write_text(described.model_dump_json())
        for name, data in self.files.items():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_bytes(data)

    @property
    def home(self) -> Directory:
        """Return the storage of the trial's checkpoints."""
        assert self.checkpoints is not None
        return Directory(self.checkpoints)

    def job(self, resume_from: str | None = None) -> LaunchSpec:
        """Return the launch spec of the next attempt."""
        self.attempts += 1
        slots = tuple(range(self.slots))
        return LaunchSpec(
            experiment=1,
            trial=1,
            attempt=self.attempts,
            config=Config(
                slots=self.slots,
                backend=self.backend,
                epochs=self.epochs,
                batch_size=self.batch_size,
                threads=1,
                checkpoint_every=parse_cadence(self.every),
                **{"rehearse": False, **self.options},
            ),
            params=parse(self.source).bind(self.params),
            placement=(Share(node="here", kind=self.kind, address="127.0.0.1", slots=slots),),
            python=sys.executable,
            cwd=str(self.folder),
            code=str(self.folder / "code"),
            snapshot="0" * 64,
            checkpoints=str(self.checkpoints),
            until=self.until,
            resume_from=resume_from,
            batch=self.batch,
            home=str(self.service_home),
            uid=self.uid,
        )

    def start(self, resume_from: str | None = None, hold: int | None = None) -> Attempt:
        """Start the next attempt's ranks; with `hold` they stop after this many steps, until they may continue."""
        link = self.folder / "hold"
        if hold is None:
            link.unlink(missing_ok=True)
        else:
            calls = hold * max(1, (self.options.get("logical_workers") or 1) // self.slots)  # of the loss function
            beside = self.folder / "hold.made"
            beside.symlink_to(str(calls))
            beside.replace(link)
        return Attempt(self, self.job(resume_from))

    def run(self, resume_from: str | None = None) -> Attempt:
        """Start the next attempt, and wait for its end."""
        return self.start(resume_from).ended()

    def killed_at(self, step: int, rank: int = 0, saves: int = 1) -> Attempt:
        """Start the first attempt, and kill a rank after the checkpoint of this step, before the next one.

        `saves` is how often the step is saved: twice where an epoch ends with the best validation so far. A kill within
        the second time leaves the checkpoint of the step before.
        """
        attempt = self.start(hold=step).reaches(step - 1)
        attempt.wait(lambda: attempt.committed().count(f"{step}-1") == saves)
        return attempt.kill(rank)

    def newest(self) -> Manifest:
        """Return the newest committed checkpoint."""
        return self.home.committed()[-1]

    def pinned(self) -> str | None:
        """Return the checkpoint from which the next attempt resumes, None before the first commit."""
        committed = self.home.committed()
        return committed[-1].id if committed else None

    def weights(self) -> dict[str, bytes]:
        """Return the bits of the newest checkpoint's model."""
        return {name: tensor.numpy().tobytes() for name, tensor in self.model().items()}

    def model(self) -> dict[str, Any]:
        """Return the `state_dict` of the newest checkpoint's model."""
        return load_model(self.home, self.newest())

    def parts(self) -> dict[str, str]:
        """Return the digests of the newest checkpoint's parts: model, optimizer, buffers of all ranks."""
        return {part.name: part.digest for part in self.newest().parts}


class Attempt:
    """Rank processes of an attempt."""

    def __init__(self, trial: Trial, job: LaunchSpec) -> None:
        self.folder = AttemptFolder(trial.folder / "attempts" / str(job.id))
        self.folder.prepare(job, "no token")
        self._hold = trial.folder / "hold"
        self._gang = WarmGang(job, self.folder)
        self.job = job

    def ended(self) -> Attempt:
        """Wait until every rank has ended."""
        try:
            self.wait(lambda: None not in self._gang.codes().values())
        finally:
            self._gang.close()
        return self

    def wait(self, happened: Any) -> None:
        """Wait until `happened()` is true; on a timeout, fail with the ranks' logs."""
        begun = time.monotonic()
        while not happened():
            assert time.monotonic() - begun < PATIENCE_S * starvation(), self.logs()
            time.sleep(0.02)

    def reaches(self, step: int) -> Attempt:
        """Wait until rank 0 has reported this step or a later one, or the gang has ended."""
        self.wait(lambda: set(self._gang.codes().values()) != {None} or (self._gang.pids() and self.step >= step))
        return self

    def kill(self, rank: int) -> Attempt:
        """Kill a rank by SIGKILL, after which the others end by themselves.

        If they do not, end them as the launcher does: Horovod may wait for a peer that is lost.
        """
        os.kill(self._gang.pids()[rank], signal.SIGKILL)
        self.go()
        deadline = time.monotonic() + GRACE_S
        while None in self.codes and time.monotonic() < deadline:
            time.sleep(0.02)
        self._gang.end()
        return self.ended()

    def go(self) -> Attempt:
        """Let the stopped ranks continue."""
        self._hold.unlink(missing_ok=True)
        return self

    def tell(self, instruction: str) -> Attempt:
        """Send an instruction to the ranks."""
        self._gang.tell(instruction)
        return self

    def heard(self) -> Attempt:
        """Wait until every rank has read its instructions."""
        self.wait(lambda: not self._gang.unread())
        return self

    def terminate(self, rank: int) -> Attempt:
        """Send SIGTERM to one rank."""
        os.kill(self._gang.pids()[rank], signal.SIGTERM)
        return self

    def hang_up(self) -> Attempt:
        """Close every rank's stdin, like the death of a launcher does."""
        self._gang.hang_up()
        return self

    def pids(self) -> list[int]:
        """Return the process ids of the ranks; empty until all of them exist."""
        return list(self._gang.pids().values()) if self._gang.codes() else []

    @property
    def codes(self) -> list[int | None]:
        """Return the ranks' exit codes."""
        return list(self._gang.codes().values())

    @property
    def records(self) -> list[SpoolRecord]:
        """Return the records that rank 0 wrote into its spool."""
        return read_after(self.folder.spool, 0)

    @property
    def started(self) -> Started:
        """Return the record that the training has started."""
        found = [each for each in self.records if isinstance(each, Started)]
        assert found, self.logs()
        return found[0]

    @property
    def step(self) -> int:
        """Return the newest reported step."""
        return max((each.step for each in self.records if isinstance(each, Report)), default=0)

    def reports(self, kind: str) -> dict[int, dict[str, float]]:
        """Return the reported metrics by step."""
        return {each.step: each.metrics for each in self.records if isinstance(each, Report) and each.kind == kind}

    def notes(self) -> list[str]:
        """Return the texts of the reported notes."""
        return [each.text for each in self.records if isinstance(each, Note)]

    def committed(self) -> list[str]:
        """Return the reported checkpoints."""
        return [each.id for each in self.records if isinstance(each, Committed)]

    def failures(self) -> dict[int, Failure]:
        """Return the failures that the attempt's ranks wrote, by rank."""
        return self.folder.failures()

    def logs(self) -> str:
        """Return the output of all ranks."""
        logs = sorted(self.folder.path.glob("rank-*.log"))
        return "\n".join(f"{log.name}\n{log.read_text()[-3000:]}" for log in logs)


def as_json(value: Any) -> str:
    """Return values as JSON, in which floats are equal only if their bits are."""
    return json.dumps(value, sort_keys=True)
