"""Run a complete small Daylight for a test: a home, its real service process, and a client."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.model.experiment import Config, Submission
from kernel_backend.model.reports import StoredReport
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.model.states import EXPERIMENT_ENDED
from kernel_backend.model.views.overview import Overview
from kernel_backend.snapshots.archive import pack
from kernel_backend.spec.assignments import parse_line
from tests.support import forkservers
from tests.support.empty_database import empty_database
from tests.support.forked_service import ForkedService
from tests.support.patience import PATIENCE_S, until

# Eight numbers to one; 64 samples in batches of 8 are 8 steps an epoch, each of which takes `pause` seconds.
DEFINITION = """
import time
import torch
from torch import nn

def dataset(samples=64):
    x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
def train_data(dataset):      return dataset
def validation_data(dataset): return torch.utils.data.Subset(dataset, range(16))
def model(width=16, dropout=0.2):
    layers = nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 1)
    return nn.Sequential(*layers)
def optimizer(params, lr=1e-2): return torch.optim.AdamW(params, lr=lr)
def loss(output, target, pause=0.0):
    time.sleep(pause)
    return nn.functional.mse_loss(output, target)
def metrics(output, target):  return {"error": (output - target).abs().squeeze(1)}
"""

# The same, but that a step takes no time once the file `hurry` is there: it lasts until a test has done its deed.
LASTING = (
    DEFINITION.replace("import time", "import os, time", 1)
    .replace("pause=0.0)", 'pause=0.0, hurry="")')
    .replace("time.sleep(pause)", "time.sleep(0.0 if os.path.exists(hurry) else pause)")
)

NO_ENVIRONMENT = Environment(python="3", implementation="CPython", platform="linux", cpu="", cores=2, distributions={})


class World:
    """Home with a service process, and methods that disturb it.

    The forkserver may be shared by all worlds of this process.
    """

    def __init__(self, home: Path, slots: int = 2, shared_forkserver: bool = False) -> None:
        self.home = home
        self.settings: tuple[str, ...] = ()  # arguments of each service
        self.database: str | Path = home / "daylight.db"  # where its store is
        self.environment = {**os.environ, "DAYLIGHT_HOME": str(home), "DAYLIGHT_SLOTS": str(slots)}
        self._services: list[psutil.Process] = []  # which show neither their command line nor their variables
        self._hurries = itertools.count(1)
        self._client: Client | None = None  # kept, as tests look often, and a new connection takes thrice the time
        home.mkdir(parents=True, exist_ok=True)
        if shared_forkserver:
            forkservers.share(home)

    def serve(self, *arguments: str) -> Client:
        """Start the service as a detached process unless it runs, and return a client of it."""
        process: ForkedService | None = None

        def serves() -> bool:
            nonlocal process
            if discovery.find(self.home) is not None:
                return True
            # One that ends without a word has found the lock held: by another, or by one that is still dying.
            if process is None or process.exit_code == 0:
                process = self.start_service(*arguments)
            return False

        until(serves, "the service starts")
        return Client.connect(start=False, home=self.home)

    def start_service(self, *arguments: str) -> ForkedService:
        """Start a service process, and return it without waiting until it listens."""
        if isinstance(self.database, Path):  # else it is on a server
            empty_database(self.database)
        with (self.home / "service.log").open("ab") as log:
            service = ForkedService(self.home, *self.settings, *arguments, said=log, **self.environment)
        self._services.append(service.process)
        return service

    def submit(
        self, source: str = DEFINITION, name: str | None = None, cwd: Path | None = None, **options: Any
    ) -> Overview:
        """Submit a definition that begins in line 2 of cell [4].

        Arguments that are no fields of Config are hyperparameters. `space` is a search space, as on a magic's line.
        """
        source = textwrap.dedent(source).strip() + "\n"
        config = {key: options.pop(key) for key in list(options) if key in Config.model_fields}
        snapshot = Snapshot(
            version="test",
            numerics=1,
            pieces=(Piece(cell=4, line=1, count=len(source.splitlines()), cell_line=2),),
            roles_from=1,
            contract=options.pop("contract", 1),
            environment=options.pop("environment", NO_ENVIRONMENT),
        )
        id, data = pack({"definition.py": source.encode(), "snapshot.json": snapshot.model_dump_json().encode()})
        client = Client.connect(start=False, home=self.home)
        client.upload_snapshot(id, data)
        space = parse_line(options.pop("space", "").split()).space
        settings = Config.model_validate(
            {"batch_size": 8, "slots": 2, "epochs": 2, "threads": 1, "rehearse": False} | config
        )
        return client.submit(
            Submission(
                snapshot=id,
                config=settings,
                params=options,
                space=space,
                python=sys.executable,
                cwd=str(cwd or self.home),
                name=name,
                again=True,
            )
        )

    def lasting(self, source: str = LASTING, pause: float = 0.5, **options: Any) -> int:
        """Submit a training with slow steps, for a test that disturbs it and then calls `hurry`; return its number."""
        hurry = self.home / f"hurry-{next(self._hurries)}"
        return self.submit(source, pause=pause, hurry=str(hurry), **options).experiment.number

    def hurry(self, number: int, attempt: int = 1) -> None:
        """Make a lasting training fast from its present attempt on."""
        until(
            lambda: (trials := self.overview(number).trials) and trials[0].attempt >= attempt,
            f"#{number} is in attempt {attempt}",
        )
        Path(str(self.overview(number).trials[0].params["hurry"])).touch()

    def overview(self, number: int) -> Overview:
        """Return the experiment's current overview."""
        if self._client is None:
            self._client = Client.connect(start=False, home=self.home)
        return self._client.experiment(number)

    def reports(self, number: int, trial: int = 1) -> list[StoredReport]:
        """Return all reports of the trial."""
        return Client.connect(start=False, home=self.home).reports(number, trial)

    def ended(self, number: int, patience: float = PATIENCE_S) -> Overview:
        """Wait until the experiment has ended."""

        def look() -> Overview | None:
            found = self.overview(number)
            return found if found.experiment.state in EXPERIMENT_ENDED else None

        return until(look, f"experiment {number} ends", patience)

    def reached(self, number: int, step: int) -> Overview:
        """Wait until the trial has reported a step."""
        return until(
            lambda: (o := self.overview(number)).trials and o.trials[0].step >= step and o, f"#{number} reaches {step}"
        )

    def checkpointed(self, number: int) -> Overview:
        """Wait until the trial has a checkpoint."""
        return until(  # a search has no trials in the first moment
            lambda: (o := self.overview(number)).trials and o.trials[0].checkpoint and o,
            f"#{number} commits a checkpoint",
        )

    def state(self, number: int, state: str) -> Overview:
        """Wait until the experiment is in this state."""
        return until(lambda: (o := self.overview(number)).state == state and o, f"#{number} is {state}")

    def processes(self, module: str) -> list[psutil.Process]:
        """Return the running processes of this home whose command line has `module`, without forkservers."""
        return list(self._processes(module))

    def ranks(self) -> dict[int, psutil.Process]:
        """Return the running ranks by number, from the records of their launchers."""
        found = {}
        for record in self.home.glob("attempts/*/ranks*.json"):
            for rank, pid in json.loads(record.read_bytes()).items():
                with contextlib.suppress(psutil.Error):  # it has ended
                    if self._lives_here(process := psutil.Process(pid)):
                        found[int(rank)] = process
        return found

    def forkservers(self) -> list[psutil.Process]:
        """Return the forkservers of this home alone, without the ranks forked from them."""
        parents = {}
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                if self._has_as_forkserver(each):
                    parents[each] = each.ppid()
        return [each for each, parent in parents.items() if parent not in {other.pid for other in parents}]

    def kill_service(self) -> None:
        """Kill only the service, by SIGKILL."""
        address = discovery.find(self.home)
        assert address is not None
        os.kill(address.pid, signal.SIGKILL)
        # Whoever misses it may have started another by now.
        until(lambda: (found := discovery.find(self.home)) is None or found.pid != address.pid, "the service is gone")

    def weights(self, number: int) -> dict[str, str]:
        """Return the digests of the parts of the newest checkpoint: equal digests mean equal bits."""
        from kernel_backend.checkpoints.directory import Directory

        newest = Directory(self.home / "checkpoints" / str(number) / "1").committed()[-1]
        return {part.name: part.digest for part in newest.parts}

    def close(self) -> None:
        """End all processes of this home, including those that they start meanwhile."""
        if self._client is not None:
            self._client.close()
        while left := list(self._everything()):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=0.5)

    def _processes(self, module: str) -> Iterator[psutil.Process]:
        for process in self._everything():
            with contextlib.suppress(psutil.Error):
                if module in " ".join(process.cmdline()) and not forkservers.is_one(process):
                    yield process

    def _everything(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and self._lives_here(process):
                    yield process

    def _lives_here(self, process: psutil.Process) -> bool:
        """Return True for a process of this home that has not ended."""
        return self._has(process) and process.status() != psutil.STATUS_ZOMBIE

    def _has(self, process: psutil.Process) -> bool:
        """Return True for a process of this home; a forked rank has the environment of its forkserver."""
        if process in self._services:
            return True
        command = process.cmdline()
        if "kernel_backend.runner" in command:
            return Path(command[-1]).is_relative_to(self.home)
        if forkservers.is_one(process):
            return self._has_as_forkserver(process)
        return process.environ().get("DAYLIGHT_HOME") == str(self.home)

    @property
    def _shares_forkserver(self) -> bool:
        return (self.home / "forkservers").is_symlink()

    def _has_as_forkserver(self, process: psutil.Process) -> bool:
        return forkservers.is_one(process) and str(self.home) in process.cmdline() and not self._shares_forkserver


def gone(process: psutil.Process) -> bool:
    """Return True if a process has ended; zombies count as ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
