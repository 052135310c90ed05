"""Run gangs of a search, one after another, as steps of one Slurm job; this program is the job's batch script.

    python -m kernel_backend.engines.slurm.holder FOLDER --idle 60

The service appends orders to FOLDER/orders, and this process appends events, such as the end of a gang, to
FOLDER/events. It imports only the standard library, since it stays in the memory of the job.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from kernel_backend.engines.allocations.holder import TURN_S, FileChannel, Holder


class JobSteps:
    """Starter of gangs as job steps of the Slurm job in which this process runs."""

    def __init__(self) -> None:
        self._step: subprocess.Popen[bytes] | None = None

    def start(self, order: dict[str, Any]) -> None:
        """Start a gang by running the shell script of the order, which replaces itself by srun.

        Raises OSError if the log cannot be opened.
        """
        with open(order["log"], "ab") as log:
            self._step = subprocess.Popen(
                ["/bin/sh", order["script"]], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def poll(self) -> int | None:
        """Return the exit code of the script that was started last; None while it runs."""
        return None if self._step is None else self._step.poll()

    def release(self) -> None:
        """Send SIGURG to the processes of the running step; only launchers handle this signal."""
        _scancel("--signal=URG", _job())

    def kill(self) -> None:
        """Kill the job steps that Slurm lists now; a step that srun creates later is not affected."""
        listed = subprocess.run(["squeue", "-s", "-h", "-j", _job(), "-o", "%i"], capture_output=True, check=False)
        steps = [each for each in listed.stdout.decode().split() if each.rpartition(".")[2].isdigit()]
        for each in steps:
            _scancel("--signal=KILL", each)
        if not steps and self._step is not None:  # srun waits for the step, or its processes have just ended
            self._step.terminate()


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
    holder = Holder(FileChannel(arguments.folder), JobSteps(), arguments.idle)

    def ended_by_slurm(*_: object) -> None:
        holder.closing = "Slurm ends its job"

    signal.signal(signal.SIGTERM, ended_by_slurm)  # Slurm signals steps as well, whose launchers then save a checkpoint
    while holder.turn():
        time.sleep(TURN_S)


if __name__ == "__main__":
    main()
