"""Run Slurm's commands; no other module of the service runs any."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Mapping

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.slurm.parse import SINFO, no_answer, parse_limit, sentence
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.pools import Pool

TIMEOUT_S = 20.0
# Not passed on: variables of a surrounding job, and options of Slurm's commands, would change the request, and
# SLURM_JWT makes sacct fail.
_FOREIGN = (
    "SLURM",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SINFO_",
    "SCANCEL_",
    "SCONTROL_",
    "SACCT_",
    "PMI_",
    "PMIX_",
)
_KEEP = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER"})  # these select the cluster


class SlurmRefused(DaylightError):
    """Error: Slurm refuses a request; the message is Slurm's own."""

    http_status = 400


def cleaned(base: Mapping[str, str], withheld: Collection[str] = ()) -> dict[str, str]:
    """Return the environment variables `base` without some: those named `withheld`, and those that configure Slurm.

    Variables such as SBATCH_PARTITION would change the commands of Slurm, or the jobs that they submit.
    """
    return {
        name: value
        for name, value in base.items()
        if name in _KEEP or (name not in withheld and not name.startswith(_FOREIGN))
    }


async def start(
    *words: str, env: Mapping[str, str] | None = None, pass_fds: Collection[int] = ()
) -> asyncio.subprocess.Process:
    """Start a command of Slurm, with pipes for its input and output.

    `pass_fds` are file descriptors that the command inherits. Raises EngineUnavailable if Slurm is not installed.
    """
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=cleaned(os.environ) if env is None else env,
            start_new_session=True,  # so that a Ctrl-C in the service's terminal does not reach it
            pass_fds=tuple(pass_fds),
        )
    except FileNotFoundError:
        raise EngineUnavailable(
            f"{words[0]} not found: start the service on a machine with Slurm's commands, such as a login node, or put "
            "them on its PATH"
        ) from None


async def run(
    *words: str, stdin: str = "", env: Mapping[str, str] | None = None, pass_fds: Collection[int] = ()
) -> str:
    """Run a command of Slurm with the text `stdin` as its input, and return its output.

    `pass_fds` are file descriptors that the command inherits. Raises EngineUnavailable if Slurm does not answer or is
    not installed, and SlurmRefused with the command's error output if it fails for another reason.
    """
    process = await start(*words, env=env, pass_fds=pass_fds)
    try:
        output, errors = await asyncio.wait_for(process.communicate(stdin.encode()), TIMEOUT_S)
    except TimeoutError:
        raise EngineUnavailable(f"Slurm's controller does not answer: {words[0]} took {TIMEOUT_S:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return output.decode(errors="replace")
    said = errors.decode(errors="replace")
    if no_answer(said):
        raise EngineUnavailable(f"Slurm's controller does not answer: {sentence(said)}")
    raise SlurmRefused(sentence(said) or f"{words[0]} ended with code {process.returncode}", command=words[0])


async def sinfo(pool: Pool) -> str:
    """Return what sinfo prints about the nodes of a pool's partition; raise the same errors as `run`."""
    partition = pool.settings.partition
    return await run("sinfo", "-N", "-h", *(["-p", partition] if partition else []), "-o", SINFO)


async def partition_limit(pool: Pool) -> float | None:
    """Return the time limit of a pool's partition in seconds, None without one; raise the same errors as `run`."""
    partition = pool.settings.partition
    return parse_limit(await run("sinfo", "-h", *(["-p", partition] if partition else []), "-o", "%P|%l"))
