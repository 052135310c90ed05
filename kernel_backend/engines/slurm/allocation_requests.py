"""Request allocations from Slurm: jobs whose batch script runs gangs of a search one after another."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import time
from pathlib import Path

from kernel_backend.engines.allocations.choice import Demand, length, margin
from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.folders import MARK
from kernel_backend.engines.slurm.allocations import LOG, SlurmAllocation, SlurmRecord
from kernel_backend.engines.slurm.commands import SlurmRefused, cleaned, partition_limit, run
from kernel_backend.engines.slurm.parse import limit_text, parse_job_id, too_many
from kernel_backend.engines.slurm.script import comment_mark
from kernel_backend.home import allocation_folder
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.launch_spec import LaunchSpec

LIMIT_S = 600.0  # for how long the time limit of a partition is cached
_log = logging.getLogger(__name__)


class AllocationRequests:
    """Sender of requests for allocations that one pool keeps for searches."""

    def __init__(self, home: Path, pool: Pool, service: str) -> None:
        self._home, self._pool, self._service = home, pool, service
        self._limit: tuple[float, float | None] = (0.0, None)  # when the cached limit expires, and the limit in seconds

    async def prepared(self, job: LaunchSpec, demand: Demand) -> SlurmAllocation:
        """Return a new allocation for gangs with this demand, of the length that `job` requests.

        Its record is written to its folder; its Slurm job is not submitted yet. Raises EngineUnavailable if Slurm does
        not answer.
        """
        id = f"{job.experiment}-{secrets.token_hex(3)}"
        record = SlurmRecord(
            id=id,
            pool=self._pool.name,
            experiment=job.experiment,
            slots=job.config.slots,
            python=job.python,
            options=demand.options,
            seconds=length(job.keep_allocation or 0.0, await self._partition_limit()),
            comment=f"{comment_mark(self._service, self._pool.name)}allocation:{id}",
            at=time.time(),
        )
        held = SlurmAllocation(allocation_folder(self._home, id), record)
        held.folder.mkdir(parents=True, mode=0o700)
        held.change()
        return held

    async def submit(self, held: SlurmAllocation) -> None:
        """Submit the Slurm job of an allocation by sbatch.

        Raises EngineUnavailable if Slurm does not answer or the user has too many jobs in the queue, and SlurmRefused
        with Slurm's message otherwise.
        """
        script = f"#!/bin/sh\nexec {shlex.join(_holder(held, self._pool))}\n"
        env = cleaned(os.environ, ("DAYLIGHT_SLOTS", "DAYLIGHT_HOME", MARK))
        try:
            output = await run("sbatch", *_options(held), stdin=script, env=env)
        except SlurmRefused as error:
            if too_many(error.message):
                raise EngineUnavailable(f"Slurm: {limit_text(error.message)}") from None
            raise
        held.change(job=parse_job_id(output))

    async def _partition_limit(self) -> float | None:
        if time.monotonic() > self._limit[0]:
            self._limit = time.monotonic() + LIMIT_S, await partition_limit(self._pool)
        return self._limit[1]


async def cancel(held: SlurmAllocation, *words: str) -> bool:
    """Call scancel with the options `words` for the Slurm job of an allocation.

    Returns False if Slurm did not answer; True also if the job has ended already.
    """
    try:
        if held.record.job:
            await run("scancel", *words, held.record.job)
    except SlurmRefused:
        return True  # the job has ended
    except EngineUnavailable as error:
        _log.warning("job %s could not be cancelled: %s", held.record.job, error)
        return False
    return True


def _options(held: SlurmAllocation) -> list[str]:
    """Return the options of sbatch for an allocation; the pool's own come last, and so take precedence."""
    record, log = held.record, str(held.folder / LOG).replace("%", "%%")
    words = ["--parsable", "--no-requeue", f"--job-name=daylight-{record.experiment}-allocation"]
    words += [f"--comment={record.comment}", "--chdir=/", f"--output={log}", "--open-mode=append", "--input=/dev/null"]
    words += [f"--time={-(-int(record.seconds) // 60)}"]
    words += [f"--signal=URG@{margin(record.seconds):.0f}"]  # launchers alone handle SIGURG in steps
    return [*words, *record.options]


def _holder(held: SlurmAllocation, pool: Pool) -> list[str]:
    module = "kernel_backend.engines.slurm.holder"
    return [held.record.python, "-P", "-m", module, str(held.folder), "--idle", f"{pool.settings.keep_idle:g}"]
