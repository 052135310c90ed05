"""Make the options of sbatch and the script that it runs: pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_backend.engines.folders import MARK, withheld
from kernel_backend.engines.slurm.commands import cleaned
from kernel_backend.launch.node import SHARES
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.staging import SCRATCH, VARIABLE, StagingRequest

PROBE_MIN = 3  # minutes that the job of a probe may take: a short one starts early between others
PROBE_WAIT_S = 60  # seconds that it waits for nodes
_OF_SBATCH = re.compile(
    r"--(?:array|error|export-file|get-user-env|input|no-requeue|open-mode|output|parsable|quiet|requeue|signal"
    r"|test-only|verbose|wait|wrap)(?:=|$)|-[aeioQvW]"
)


class Shape(NamedTuple):
    """Request for slots: their number, on how many nodes, and whether a slot is a GPU."""

    slots: int
    nodes: int
    gpus: bool

    @classmethod
    def of(cls, job: LaunchSpec) -> Shape:
        """Return the shape of a notional placement: Slurm itself chooses the nodes and shares."""
        return cls(
            slots=sum(len(share.slots) for share in job.placement),
            nodes=max(1, len(job.placement)),
            gpus=any(share.kind != "cpu" for share in job.placement),
        )

    @property
    def equal(self) -> bool:
        """Return whether each node can have the same number of slots."""
        return self.slots % self.nodes == 0


def comment(service: str, job: LaunchSpec, digest: str) -> str:
    """Return the comment by which a job is found: of this service, this attempt, and this token.

    Names of jobs are not unique, and a restored database starts attempts with the keys of earlier ones.
    """
    return f"daylight:{service}:{job.pool}:{job.id}:{digest[:16]}"


def sbatch_options(job: LaunchSpec, pool: Pool, folder: Path, comment: str) -> list[str]:
    """Return the options of sbatch for a gang; those of the pool's `extra` come last, so that they win."""
    words = ["--parsable", "--no-requeue", f"--job-name=daylight-{job.id}", f"--comment={comment}"]
    log = "/dev/null" if job.staged else str(folder / "launcher.log").replace("%", "%%")
    cwd = "/" if job.staged else job.cwd
    words += [f"--chdir={cwd}", f"--output={log}", "--open-mode=append", "--input=/dev/null"]
    words += [*_where(pool), *([f"--exclude={','.join(job.excluded)}"] if job.excluded else [])]
    return [*words, *_size(Shape.of(job), pool), *pool.settings.extra]


def probe_options(pool: Pool, nodes: int, gpus: bool, name: str) -> list[str]:
    """Return the options of srun for the probe of a pool, one slot on each node, with those of the pool.

    Options of sbatch that srun does not have, or that would move its output, are left out. The last ones win.
    """
    words = [f"--job-name={name}", "--chdir=/", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0"]
    extra = [each for each in pool.settings.extra if not _OF_SBATCH.match(each)]
    size = _size(Shape(slots=nodes, nodes=nodes, gpus=gpus), pool)
    return [*words, *_where(pool), *size, *extra, f"--time={PROBE_MIN}", f"--immediate={PROBE_WAIT_S}"]


def script(job: LaunchSpec, pool: Pool, folder: Path, scratch: Path) -> str:
    """Return the batch script, which starts a launcher on each node and leaves with their exit code."""
    shape = Shape.of(job)
    module = ["kernel_backend.staging"] if job.staged else ["kernel_backend.launch", str(folder)]
    launcher = [job.python, "-P", "-m", *module, "--step", "slurm"]
    step = ["srun", "--mpi=none", "--input=none", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    step += [f"--nodes={shape.nodes}", f"--ntasks={shape.nodes}", "--ntasks-per-node=1"]
    if shape.equal:  # else the nodes' shares differ, and a task may use all that its node has of the job
        step.append(f"--cpus-per-task={_cpus(shape, pool)}")
    output = _own_output(scratch, job) if job.staged else ""
    return f"#!/bin/sh\n{output}{_shares(shape)}exec {shlex.join([*step, *launcher])}\n"


def job_env(base: Mapping[str, str], job: LaunchSpec, folder: Path, scratch: Path, token: str) -> dict[str, str]:
    """Return the environment of sbatch, which Slurm passes on to the job.

    The slots of the service's own machine are not those of the nodes. Nodes that do not see the folder of the attempt
    find by `scratch` and `token` what they need.
    """
    here = {MARK: str(folder), "DAYLIGHT_HOME": job.home}
    own = _staging(job, scratch, token) if job.staged else here
    return cleaned(base, (*withheld(job.config.env), "DAYLIGHT_SLOTS", *here)) | own


def scratch_folder(base: Mapping[str, str], pool: Pool, service: str) -> Path:
    """Return the folder on the nodes' own disks for the files of a service's trainings; jobs inherit these variables.

    Examples
    --------
    >>> from kernel_backend.model.cluster.pools import PoolSettings
    >>> pool = Pool(name="gpu", settings=PoolSettings(engine="slurm", shared=False))
    >>> str(scratch_folder({"HOME": "/home/ada"}, pool, "5f"))
    '/home/ada/.cache/daylight/5f'
    """
    cache = base.get("XDG_CACHE_HOME") or f"{base.get('HOME', '/tmp')}/.cache"
    return Path(pool.settings.scratch or f"{cache}/daylight", service)


def job_output(scratch: Path, job: LaunchSpec) -> Path:
    """Return the file on the first node of a job with what it prints before its launchers run."""
    return scratch / f"{job.id}.out"


def _staging(job: LaunchSpec, scratch: Path, token: str) -> dict[str, str]:
    request = StagingRequest(key=str(job.id), urls=job.service_urls, uid=job.service_uid, token=token)
    return {VARIABLE: request.model_dump_json(), SCRATCH: str(scratch)}


def _own_output(scratch: Path, job: LaunchSpec) -> str:
    """Return the lines by which output of a job lies in a folder that only its user can read."""
    folder, output = shlex.quote(str(scratch)), shlex.quote(str(job_output(scratch, job)))
    return f"umask 077\nmkdir -p {folder} && exec >>{output} 2>&1 || exit 1\n"


def _shares(shape: Shape) -> str:
    """Return the line by which launchers know their nodes' shares of the CPU; a GPU is seen by itself."""
    if shape.gpus:
        return ""
    if shape.equal:
        return f"export {SHARES}='{shape.slots // shape.nodes}(x{shape.nodes})'\n"
    # srun overwrites it with that of the step, in which each node has one task.
    return f'export {SHARES}="$SLURM_TASKS_PER_NODE"\n'


def _where(pool: Pool) -> list[str]:
    settings = pool.settings
    named = {"partition": settings.partition, "account": settings.account, "qos": settings.qos}
    named["constraint"] = settings.constraint
    return [f"--{name}={value}" for name, value in named.items() if value]


def _cpus(shape: Shape, pool: Pool) -> int:
    return shape.slots // shape.nodes * pool.settings.cpus_per_slot


def _size(shape: Shape, pool: Pool) -> list[str]:
    """Return the options for a gang's size: shares are equal if possible, else Slurm chooses them."""
    settings, memory = pool.settings, pool.settings.memory_per_slot
    words, kind = [f"--nodes={shape.nodes}"], f"{settings.gpu_type}:" if settings.gpu_type else ""
    if shape.equal:
        each = shape.slots // shape.nodes
        words += [f"--ntasks={shape.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={_cpus(shape, pool)}"]
        words += [f"--gres=gpu:{kind}{each}"] if shape.gpus else []
        return [*words, f"--mem={each * memory}M"] if memory else words
    if shape.gpus:
        words += [f"--ntasks={shape.nodes}", "--ntasks-per-node=1"]
        words += [f"--gpus={kind}{shape.slots}", f"--cpus-per-gpu={settings.cpus_per_slot}"]
        return [*words, f"--mem-per-gpu={memory}M"] if memory else words
    words += [f"--ntasks={shape.slots}", f"--cpus-per-task={settings.cpus_per_slot}"]
    return [*words, f"--mem-per-cpu={-(-memory // settings.cpus_per_slot)}M"] if memory else words
