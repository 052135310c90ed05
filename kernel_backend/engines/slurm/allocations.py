"""Read and write the folder of a Slurm allocation that is kept for several trials of a search.

The folder has its record, the orders for its batch script, and the events that the batch script reports.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from kernel_backend.durable import replacing
from kernel_backend.engines.slurm.allocation_choice import Demand
from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.holder import EVENTS, ORDERS, append_line, read_lines
from kernel_backend.engines.slurm.parse import PENDING, SlurmJob, parse_time
from kernel_backend.home import allocation_folder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.record import Record
from kernel_backend.model.versions import read

RECORD, LOG = "allocation.json", "holder.log"


class AllocationRecord(Record):
    """Record of an allocation; it is written before sbatch runs, so that an interrupted request is noticed."""

    id: str
    pool: str
    experiment: int
    slots: int
    python: str
    options: tuple[str, ...]
    seconds: float
    comment: str
    at: float  # time of the request
    job: str = ""  # Slurm's job id; "" if sbatch has not answered
    closing: str = ""  # reason why it takes no more gangs; "" while it does
    refused: str = ""  # reason why Slurm can never start it; "" if it may


class Allocation:
    """Allocation and the events that its batch script has reported; its gangs have the names of `Submission.step`."""

    def __init__(self, folder: Path, record: AllocationRecord) -> None:
        self.folder, self.record = folder, record
        self.ordered: dict[str, float] = {}  # time at which the start of each gang was ordered, by name
        self.started: set[str] = set()
        self.ended: dict[str, int | None] = {}  # exit code of the step of each gang; None if it never began
        self.released: dict[str, float] = {}  # time at which each gang was asked to exit
        self.closed = ""  # reason with which the holder has exited; "" before
        self.idle_since: float | None = time.time()
        self.missing_since: float | None = None  # monotonic time since which Slurm does not list its job
        self.closing_since: float | None = None  # monotonic time since which its holder should have exited
        self._offset = 0

    @classmethod
    def opened(cls, folder: Path) -> Allocation | None:
        """Return the allocation that an earlier process of the service has left in a folder; None if there is none."""
        try:
            found = cls(folder, read(AllocationRecord, (folder / RECORD).read_bytes()))
        except (OSError, ValidationError):
            return None
        for order in read_lines(folder / ORDERS)[0]:
            key = str(order.get("key"))
            if order.get("order") == "start":
                found.ordered[key] = float(order.get("at") or found.record.at)
            elif order.get("order") == "withdrawn":
                found.ended.setdefault(key, None)
        found.refresh()
        return found

    @property
    def demand(self) -> Demand:
        """Return the demand that gangs in this allocation must have."""
        return Demand(self.record.experiment, self.record.python, self.record.options)

    @property
    def gang(self) -> str:
        """Return the name of the gang that has this allocation; "" if none has it."""
        return next((key for key in reversed(self.ordered) if key not in self.ended), "")

    def change(self, **fields: object) -> None:
        """Change fields of the record and write it to the folder."""
        self.record = self.record.model_copy(update=fields)
        with replacing(self.folder / RECORD, mode=0o600, durable=False) as file:
            file.write(self.record.model_dump_json().encode())

    def order(self, what: str, key: str = "", **more: str) -> None:
        """Append the order `what`, about gang `key`, to the file that the batch script reads; may raise OSError."""
        append_line(self.folder / ORDERS, order=what, key=key, at=time.time(), **more)

    def assign(self, key: str) -> None:
        """Record that the gang of this name has the allocation."""
        self.ordered[key], self.idle_since = time.time(), None

    def withdraw(self, key: str) -> None:
        """Record that a gang, which never began, does not have the allocation any more."""
        with contextlib.suppress(OSError):  # this service process knows it in any case
            self.order("withdrawn", key)
        self.ended.setdefault(key, None)
        self._note_idle()

    def refresh(self) -> None:
        """Read what the batch script has reported since the last call."""
        events, self._offset = read_lines(self.folder / EVENTS, self._offset)
        for event in events:
            key = str(event.get("key", ""))
            if event.get("event") == "started":
                self.started.add(key)
            elif event.get("event") == "ended":
                code = event.get("code")
                self.ended[key] = code if isinstance(code, int) else None
            elif event.get("event") == "closed":
                self.closed = str(event.get("why") or "it was given back")
        self._note_idle()

    def job(self, queue: Queue) -> SlurmJob | None:
        """Return the Slurm job of this allocation; None if the queue does not list it."""
        return queue.find(self.record.job, self.record.comment)

    def shown(self, queue: Queue) -> HeldAllocation:
        """Return the public record of this allocation, as far as `queue` shows its job."""
        job, record = self.job(queue), self.record
        left = parse_time(job.left) if job is not None and job.state == "RUNNING" else None
        closing = record.closing or self.closed
        if job is not None and not closing and job.state not in PENDING | {"RUNNING", "SUSPENDED"}:
            closing = f"its job is {job.state}"
        return HeldAllocation(
            id=record.id,
            pool=record.pool,
            experiment=record.experiment,
            slots=record.slots,
            job=record.job,
            running=bool(self.started) or (job is not None and job.state not in PENDING),
            ends=None if left is None else queue.asked_at + left,
            gang=self.gang.partition(":")[0],
            idle_since=self.idle_since,
            closing=closing,
        )

    def remove(self) -> None:
        """Delete the folder of this allocation."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note_idle(self) -> None:
        if self.gang:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = time.time()


def key_of(step: str) -> AttemptId:
    """Return the attempt to which the name of a step, from `Submission.step`, belongs."""
    return parse_attempt(step.partition(":")[0])


def stored(home: Path, pool: str) -> Iterator[Allocation]:
    """Yield the allocations of a pool that an earlier process of the service has left in its home folder."""
    for path in sorted(allocation_folder(home, "").glob(f"*/{RECORD}")):
        found = Allocation.opened(path.parent)
        if found is not None and found.record.pool == pool:
            yield found
