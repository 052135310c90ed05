"""Read and write the folder of an allocation (such as a Slurm job) that is kept for several trials of a search.

The folder contains the allocation's record, the service's orders for the processes that hold the allocation (the
holders), and the events that these processes report.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import ValidationError

from kernel_backend.durable import replacing
from kernel_backend.engines.allocations.choice import Demand
from kernel_backend.engines.allocations.lines import EVENTS, ORDERS, append_line, read_lines
from kernel_backend.home import allocation_folder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.record import Record
from kernel_backend.model.versions import read

RECORD = "allocation.json"


class AllocationRecord(Record):
    """Properties of an allocation, stored in a file of its folder.

    The service writes the file before it requests the allocation from the engine, so that a request that was
    interrupted is noticed later.
    """

    id: str
    pool: str
    experiment: int
    slots: int
    python: str
    options: tuple[str, ...]
    seconds: float
    at: float  # time of the request
    job: str = ""  # its name in the engine, as Slurm's job id; "" if the engine has not answered
    closing: str = ""  # reason why it takes no more gangs; "" while it does
    refused: str = ""  # reason why the engine can never start it; "" if it may


class Allocation:
    """Allocation (such as a Slurm job) that is kept for a search, and what the processes that hold it have reported.

    A gang in it is identified by a name (`key`, `AllocatedGang.step`): the attempt's key, a colon, and a unique suffix.
    """

    kind: ClassVar[type[AllocationRecord]] = AllocationRecord

    def __init__(self, folder: Path, record: AllocationRecord) -> None:
        self.folder, self.record = folder, record
        self.ordered: dict[str, float] = {}  # time at which the start of each gang was ordered, by name
        self.begun: dict[int, float] = {}  # time at which each holder began, if holders report that, by node
        self.started: set[str] = set()
        self.ended: dict[str, int | None] = {}  # exit code of each gang's step; None if it never began
        self.released: dict[str, float] = {}  # time at which each gang was asked to exit
        self.closed = ""  # reason with which a holder has exited; "" before
        self.idle_since: float | None = time.time()
        self.missing_since: float | None = None  # monotonic time since which the engine does not list it
        self.closing_since: float | None = None  # monotonic time since which its holders should have exited
        self._codes: dict[str, dict[int, int | None]] = {}  # exit codes of gangs that holders have reported, by node
        self._offset = 0

    @classmethod
    def opened(cls, folder: Path) -> Self | None:
        """Return the allocation that an earlier process of the service has left in a folder.

        None if the folder contains no valid record of one.
        """
        try:
            found = cls(folder, read(cls.kind, (folder / RECORD).read_bytes()))
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
    def holders(self) -> int:
        """Return the number of processes that hold the allocation; each reports when a gang starts and ends."""
        return 1

    def codes(self, key: str) -> Mapping[int, int | None]:
        """Return the exit code of a gang on each node (by node number) whose holder has reported one.

        `key` is the name of the gang. The code is None for a node on which the gang never started.
        """
        return dict(self._codes.get(key, {}))

    @property
    def demand(self) -> Demand:
        """Return the requirements that a gang must have to run in this allocation."""
        return Demand(self.record.experiment, self.record.python, self.record.options)

    @property
    def gang(self) -> str:
        """Return the name of the gang that runs in this allocation or was ordered to start there; "" for none."""
        return next((key for key in reversed(self.ordered) if key not in self.ended), "")

    def change(self, **fields: object) -> None:
        """Change these fields of the allocation's record, and write the record to the folder."""
        self.record = self.record.model_copy(update=fields)
        with replacing(self.folder / RECORD, mode=0o600, durable=False) as file:
            file.write(self.record.model_dump_json().encode())

    def order(self, what: str, key: str = "", **more: str) -> None:
        """Append an order to the file that the allocation's holders read; may raise OSError.

        `what` is the order, such as `start`, and `key` the name of the gang that it concerns; `more` are further
        fields.
        """
        append_line(self.folder / ORDERS, order=what, key=key, at=time.time(), **more)

    def assign(self, key: str) -> None:
        """Record that the gang named `key` is to run in this allocation, which other gangs then cannot get."""
        self.ordered[key], self.idle_since = time.time(), None

    def withdraw(self, key: str) -> None:
        """Cancel the assignment of the gang named `key`, which has never started here; this may free the allocation."""
        with contextlib.suppress(OSError):  # this service process knows it in any case
            self.order("withdrawn", key)
        self.ended.setdefault(key, None)
        self._note_idle()

    def refresh(self) -> None:
        """Read the events that the holders have reported since the last call, and update the state of the gangs."""
        events, self._offset = read_lines(self.folder / EVENTS, self._offset)
        for event in events:
            key, node, at = str(event.get("key", "")), event.get("node", 0), event.get("at", 0.0)
            if not isinstance(node, int) or not isinstance(at, int | float):  # holders run as the user
                continue
            if event.get("event") == "begun":
                self.begun.setdefault(node, at)
            elif event.get("event") == "started":
                self.started.add(key)
            elif event.get("event") == "ended":
                self._note_end(key, node, event.get("code"))
            elif event.get("event") == "closed":
                self.closed = str(event.get("why") or "it was given back")
        self._note_idle()

    def shown(self, *, running: bool, ends: float | None, closing: str = "") -> HeldAllocation:
        """Return the fields of this allocation that users may see.

        `running`, `ends` and `closing` come from the engine: whether it has granted the nodes, when the allocation's
        time limit ends it (in seconds since the epoch), and why no more gangs can start in it ("" if they can).
        """
        record = self.record
        return HeldAllocation(
            id=record.id,
            pool=record.pool,
            experiment=record.experiment,
            slots=record.slots,
            job=record.job,
            running=running or bool(self.started),
            ends=ends,
            gang=self.gang.partition(":")[0],
            idle_since=self.idle_since,
            closing=record.closing or self.closed or closing,
        )

    def remove(self) -> None:
        """Delete the folder of this allocation."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note_end(self, key: str, node: int, code: object) -> None:
        """Record one holder's report that the gang named `key` has ended; once all holders report it, it has ended.

        `node` is the number of the holder's node. `code` is the exit code of the gang's processes there, None if they
        never started. If the first holder (node 0) reports None, the gang has not started anywhere.
        """
        codes = self._codes.setdefault(key, {})
        codes[node] = code if isinstance(code, int) else None
        if len(codes) >= self.holders or codes.get(0, 0) is None:
            told = [each for each in codes.values() if each is not None]
            self.ended[key] = next((each for each in told if each), 0) if told else None

    def _note_idle(self) -> None:
        if self.gang:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = time.time()


def key_of(step: str) -> AttemptId:
    """Return the key of the attempt from the name that its gang has in an allocation (see `AllocatedGang.step`)."""
    return parse_attempt(step.partition(":")[0])


def stored(home: Path) -> Iterator[Path]:
    """Yield the folder of each allocation that an earlier process of the service has left in the home folder."""
    for path in sorted(allocation_folder(home, "").glob(f"*/{RECORD}")):
        yield path.parent
