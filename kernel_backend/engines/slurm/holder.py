"""Run gangs of a search (each the ranks of one attempt) as steps of one Slurm job: that job's batch script.

    python -m kernel_backend.engines.slurm.holder FOLDER --idle 60

The service appends orders to FOLDER/orders, and this process appends their results to FOLDER/events. Only this process
starts steps, each gang once, so that the death of the service at any instant neither kills nor duplicates a gang.
Without a running gang for `--idle` seconds it exits, which frees the nodes, even if the service is gone. It imports
only the standard library, since it stays in the memory of the job.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

TURN_S = 0.1
KILL_AGAIN_S = 1.0  # between tries to kill a step, since srun may create the step just after a try
EVENTS, ORDERS = "events", "orders"


def read_lines(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the records in the complete lines of a file, from a byte offset on, and the offset after them.

    The file is opened for each call, since on NFS only this shows what another host has appended. Invalid lines are
    skipped.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError:  # the file does not exist yet, or the file system does not answer
        return [], offset
    data = data[: data.rfind(b"\n") + 1]
    found = []
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # its writer died, or the disk was full
            continue
        if isinstance(record, dict):
            found.append(record)
    return found, offset + len(data)


def append_line(path: Path, **record: Any) -> None:
    """Append a record to a file as one line of JSON; if an earlier writer died within a line, end that line first."""
    data = json.dumps(record).encode() + b"\n"
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
        file.write(data)


class Holder:
    """Process that holds one allocation and executes the service's orders in it."""

    def __init__(self, folder: Path, idle: float) -> None:
        self._folder, self._idle = folder, idle
        self._offset, self._known = 0, set[str]()
        self._waiting: dict[str, dict[str, Any]] = {}  # orders to start, by key
        self._key = ""  # name of the gang whose step runs
        self._step: subprocess.Popen[bytes] | None = None
        self._kill_at: float | None = None  # monotonic time of the next try to kill the step
        self._untold: list[dict[str, Any]] = []  # events not written yet, for example on a full disk
        self._busy_at = time.monotonic()
        self.closing = ""  # reason why no more gangs are started; "" while they are

    def turn(self) -> bool:
        """Execute new orders and watch the step that runs; return False once the allocation is to be ended."""
        orders, self._offset = read_lines(self._folder / ORDERS, self._offset)
        for order in orders:  # all orders are read before the next start, which a later order may withdraw
            self._take(order)
        self._reap()
        if self._step is None and self._waiting and not self.closing and self._told():
            self._start(self._waiting[next(iter(self._waiting))])
        if self._step is not None and self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill(self._step)
        if self._step is None and not self.closing and time.monotonic() > self._busy_at + self._idle:
            self.closing = f"no trial wanted it for {self._idle:g} s"
        if self._step is None and self.closing:
            self._tell(event="closed", why=self.closing)
            self._told()
            return False
        self._told()
        return True

    def _take(self, order: dict[str, Any]) -> None:
        key, what = str(order.get("key", "")), order.get("order")
        if what == "start" and key not in self._known:
            self._known.add(key)
            self._waiting[key] = order
        elif what == "close":
            self.closing = str(order.get("why") or "it was given back")
        elif what in ("release", "kill") and key in self._waiting:
            del self._waiting[key]
            self._tell(event="ended", key=key, code=None)
        elif what == "release" and key == self._key:
            _scancel("--signal=URG", _job())  # launchers alone handle SIGURG in steps
        elif what == "kill" and key == self._key:
            self._kill_at = time.monotonic()

    def _start(self, order: dict[str, Any]) -> None:
        self._tell(event="started", key=order["key"])
        if not self._told():  # the event must be stored first: a gang that may have run must not be started elsewhere
            self._untold.clear()
            return
        self._key = order["key"]
        del self._waiting[self._key]
        try:
            with open(order["log"], "ab") as log:
                self._step = subprocess.Popen(
                    ["/bin/sh", order["script"]], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        except OSError as error:
            print(f"{self._key} could not be started: {error}", flush=True)
            self._ended(127)

    def _reap(self) -> None:
        if self._step is not None and (code := self._step.poll()) is not None:
            self._ended(code)

    def _ended(self, code: int) -> None:
        self._tell(event="ended", key=self._key, code=code)
        self._key, self._step, self._kill_at, self._busy_at = "", None, None, time.monotonic()

    def _kill(self, step: subprocess.Popen[bytes]) -> None:
        self._kill_at = time.monotonic() + KILL_AGAIN_S
        listed = subprocess.run(["squeue", "-s", "-h", "-j", _job(), "-o", "%i"], capture_output=True, check=False)
        steps = [each for each in listed.stdout.decode().split() if each.rpartition(".")[2].isdigit()]
        for each in steps:
            _scancel("--signal=KILL", each)
        if not steps:  # srun waits for the step, or its processes have just ended
            step.terminate()

    def _tell(self, **event: Any) -> None:
        self._untold.append({"at": time.time(), **event})

    def _told(self) -> bool:
        """Write the events that could not be written earlier; return whether all are written now."""
        try:
            while self._untold:
                append_line(self._folder / EVENTS, **self._untold[0])
                del self._untold[0]
        except OSError as error:
            print(f"the events of the allocation cannot be written now: {error}", flush=True)
        return not self._untold


def _job() -> str:
    return os.environ["SLURM_JOB_ID"]


def _scancel(*words: str) -> None:
    subprocess.run(["scancel", *words], check=False)


def main() -> None:
    """Hold the allocation until no gang needs it, the service gives it back, or Slurm ends it."""
    parser = argparse.ArgumentParser(prog="kernel_backend.engines.slurm.holder")
    parser.add_argument("folder", type=Path, help="the folder of the allocation")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds without a gang until it is given back")
    arguments = parser.parse_args()
    holder = Holder(arguments.folder, arguments.idle)

    def ended_by_slurm(*_: object) -> None:
        holder.closing = "Slurm ends its job"

    signal.signal(signal.SIGTERM, ended_by_slurm)  # Slurm signals steps as well, whose launchers then save a checkpoint
    while holder.turn():
        time.sleep(TURN_S)


if __name__ == "__main__":
    main()
