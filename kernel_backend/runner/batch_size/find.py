"""Find the largest batch size that fits, for `--batch-size auto`: every rank tries sizes in a process of its own.

Steps are tried in a process that is started for that purpose, never in the rank itself. So the rank's model, optimizer,
buffers and random states and the user's own state stay untouched, and the training is bit-identical to one that is
given the found number. Besides, the kernel may kill a process whose memory is exhausted, or leave it in an unknown
state.

All ranks try the same size at the same time, as they will train. The next size depends on the answers of all ranks.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.facts import BatchSize
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.progress import limit
from kernel_backend.model.sizes import size
from kernel_backend.model.versions import read
from kernel_backend.runner.batch_size.bench import Answer, Task
from kernel_backend.runner.batch_size.memory import free_for_rank
from kernel_backend.runner.batch_size.sizes import FIRST, largest
from kernel_backend.runner.ipc import Instructions
from kernel_backend.runner.progress import Progress
from kernel_backend.runner.ranks.backends import Ranks

MOST = 1_000_000  # of a share, where neither the data nor the user limits it
_LOOK_S = 0.5


class _Released(Exception):
    """Error that ends the search on all ranks because one of them was requested to give up its slot."""


class BenchProcess:
    """Process that tries batch sizes for this rank; after a size that does not fit, it is replaced by a new one."""

    def __init__(self, task: Task, log: Path, patience: float, wait: Callable[[], None]) -> None:
        """Prepare to try batch sizes for the rank that `task` describes; no process is started yet.

        What the user's code prints goes to the file `log`. If no answer arrives within `patience` seconds, the size
        counts as one that does not fit. `wait` is called repeatedly while an answer is awaited; an error that it raises
        ends the waiting.
        """
        self._task, self._log, self._patience, self._wait = task, log, patience, wait
        self._process: subprocess.Popen[bytes] | None = None
        self.opened = Answer()

    def open(self) -> Answer:
        """Start the process unless it runs, and return its reply to the task, which says which sizes may be tried."""
        if self._process is None:
            command = [sys.executable, "-P", "-m", "kernel_backend.runner.batch_size.bench"]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self._task.job.cwd
                )
            self.opened = self._ask(self._task.model_dump_json())
        return self.opened

    def fits(self, batch_size: int) -> Answer:
        """Return the process's reply on whether training steps with this batch size fit into memory."""
        opened = self.open()
        return self._ask(str(batch_size)) if opened.fits else opened

    def close(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, line: str) -> Answer:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            answer = self._read()
        except BrokenPipeError:
            answer = None
        found = Answer(fits=False) if answer is None else answer  # it was killed, most likely by the kernel
        if not found.fits:
            self.close()
        return found

    def _read(self) -> Answer | None:
        """Return the process's next reply; None if it ended without one, or none arrived within `patience` seconds."""
        assert self._process is not None
        assert self._process.stdout is not None
        data, deadline = b"", time.monotonic() + self._patience
        while not data.endswith(b"\n"):
            self._wait()
            if time.monotonic() > deadline:
                return None
            if select.select([self._process.stdout], [], [], _LOOK_S)[0]:
                more = os.read(self._process.stdout.fileno(), 65536)
                if not more:
                    return None
                data += more
        return read(Answer, data)


def find_batch_size(
    job: LaunchSpec,
    ranks: Ranks,
    device: torch.device,
    backend: str,
    instructions: Instructions,
    progress: Progress,
) -> BatchSize | None:
    """Return the largest batch size that fits on all ranks; None if a rank was requested to give up its slot.

    All ranks call it together. `progress` receives heartbeats meanwhile. Raises InvalidDefinition if no size fits, or
    if the user's data fixes the batch size (a DataLoader).
    """

    def wait() -> None:
        progress.tick("sizing", 0)
        if instructions.release:
            raise _Released

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    task = Task(
        job=job,
        rank=ranks.rank,
        size=ranks.size,
        local_rank=ranks.local_rank,
        backend=backend,
        free=free_for_rank(local) if device.type == "cpu" else 0,
    )
    ranks.barrier()  # no process may have started anywhere while a rank still measures
    log = progress.folder / f"batch-size-{ranks.rank}.log"
    # The others wait without a sign of life: an answer takes half as long as they may at most.
    patience = limit("preparing", job.config.hang_timeout) / 2
    bench = BenchProcess(task, log, patience, wait)
    try:
        return _Search(job.config, ranks, bench).found()
    except _Released:
        return None
    finally:
        bench.close()


class _Search:
    """Search for the largest batch size, carried out by all ranks together, so that all arrive at the same size."""

    def __init__(self, config: Config, ranks: Ranks, bench: BenchProcess) -> None:
        self._config, self._ranks, self._bench = config, ranks, bench
        # Sizes are multiples of this, so that all shares of a batch are equal.
        self._shares = (config.logical_workers or ranks.size) * (config.accumulate or 1)
        self._unit = (config.accumulate or 1) if config.per_slot_batch else self._shares
        self._limit = 0
        self._errors: dict[int, str] = {}  # of the user's code, by share, where memory was not the reason

    def found(self) -> BatchSize:
        most, reason = self._most()
        found = largest(self._fits, most)
        if found.size:
            reason = reason if found.misfit is None else self._problem(found.misfit)
            return BatchSize(size=found.size * self._unit, reason=reason)
        first = min(FIRST, most)  # a single sample is tried after it, on which BatchNorm cannot train
        if first not in self._errors:
            raise InvalidDefinition(
                f"--batch-size auto found no size: {self._problem(first)}. Take a smaller model, --amp bf16, or more "
                "memory"
            )
        # Training shows an error of the user's code with its line, and goes on if it is one of trying sizes alone.
        usual = int(Config.model_fields["batch_size"].default)
        return BatchSize(size=min(usual, most * self._unit), reason=self._problem(first))

    def _problem(self, share: int) -> str:
        batch_size = share * self._unit
        error = self._errors.get(share)
        if error:
            return f"{batch_size} failed: {error}"
        return f"{batch_size} does not fit in {size(self._limit) if self._limit else 'memory'}"

    def _most(self) -> tuple[int, str]:
        """Return an upper limit for the search, in samples per share (part of a batch computed at once), and its cause.

        The limit is the least of `MOST`, the samples that the data has, and the limit that `--batch-size auto:N` sets.
        The cause is a text for the user.
        """
        opened = self._all(self._bench.open)
        if refusal := next((each.refusal for each in opened if each.refusal), ""):
            raise InvalidDefinition(refusal)
        self._limit = min((each.limit for each in opened if each.limit), default=0)
        samples, auto = opened[0].samples, self._config.auto_batch
        asked = None if auto is None else auto.most
        if asked is not None and asked < self._unit:
            raise InvalidDefinition(
                f"--batch-size auto:{asked} leaves a slot no sample, as each batch is cut into {self._unit} shares: "
                f"write auto:{self._unit} or more"
            )
        return min(
            (MOST, "larger ones are not tried"),
            (MOST if samples is None else max(1, samples // self._shares), "the data has no more samples"),
            (MOST if asked is None else asked // self._unit, f"at most {asked}, as requested"),
            key=lambda each: each[0],
        )

    def _fits(self, share: int) -> bool:
        batch_size = share * self._unit
        answers = self._all(lambda: self._bench.fits(batch_size))
        if all(each.fits for each in answers):
            return True
        self._bench.close()  # also where it fits, so that all ranks start their next ones at the same time
        if error := next((each.problem for each in answers if each.problem), ""):
            self._errors[share] = error
        return False

    def _all(self, ask: Callable[[], Answer]) -> list[Answer]:
        """Call `ask` on every rank, and return the answers of all ranks, by rank.

        `ask` gets an answer of the child process in which this rank tries batch sizes. Raises _Released on all ranks if
        one of them was requested to give up its slot.
        """
        mine: dict[str, Any] | None
        try:
            mine = ask().to_json()
        except _Released:
            mine = None
        gathered = self._ranks.all_gather_object(mine)
        if None in gathered:
            raise _Released
        return [read(Answer, each) for each in gathered]
