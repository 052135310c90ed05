"""Show this process the past of its program before anything else, where a restart is to run the program again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kernel_backend.home import program_folder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.runner.past.overlays import Overlays
from kernel_backend.runner.past.record import Past

_entered: list[Overlays] = []


def past_of(job: LaunchSpec, attempt: Path) -> Past:
    """Return the record of the files of a job's program as it began; `attempt` is the folder of the attempt."""
    folder = program_folder(Path(job.home), job.experiment, job.trial) / "past"
    return Past(folder, job.cwd, (job.home, job.checkpoints, job.code, str(attempt)), job.uid)


def overlays_of(job: LaunchSpec, past: Past, rank: int) -> Overlays:
    """Return the overlays with which a rank of the job would be shown the past."""
    return Overlays(past, program_folder(Path(job.home), job.experiment, job.trial) / f"replay-{rank}")


def enter(job: LaunchSpec, rank: int, attempt: Path) -> None:
    """Show this rank the past, if a program is to run again up to a checkpoint, and the kernel allows it."""
    past = past_of(job, attempt) if job.resume_from is not None else None
    if past is None or not past.recorded or len(os.listdir("/proc/self/task")) > 1:
        return
    overlays = overlays_of(job, past, rank)
    try:
        if not overlays.why_not():
            overlays.begin()
            _entered.append(overlays)
    except Exception as error:  # the restart goes on as where the kernel allows none
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"daylight: the setup sees its files of today, not those of its start: {said}", file=sys.stderr)


def rehearse(job: LaunchSpec, attempt: Path, scratch: Path) -> None:
    """Show this process the past as a restart is shown it, and keep to it whatever it does.

    `attempt` is the folder of the running attempt, `scratch` an empty one. Raises OSError if the kernel does not allow
    it, or if the past was not recorded.
    """
    past = past_of(job, attempt)
    if not past.recorded:
        raise OSError("its files were not recorded as it began")
    overlays = overlays_of(job, past, 0)
    overlays.begin(scratch)
    _entered.append(overlays)


def limit(acts: str, why_not: str) -> str:
    """Return how far a restart is from its program's start if it sees today's files, of which its setup `acts` on some.

    Examples
    --------
    >>> limit("lists runs", "unshare: not permitted")
    'a restart sees its files as they are then; the setup lists runs (unshare: not permitted)'
    """
    return f"a restart sees its files as they are then; the setup {acts} ({why_not})"


def entered() -> Overlays | None:
    """Return the overlays by which this process is shown the past, None if it is shown its files as they are."""
    return _entered[0] if _entered else None
