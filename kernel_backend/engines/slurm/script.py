"""Compose the options of sbatch and the batch script of a gang's job: pure functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kernel_backend.engines.folders import MARK, withheld
from kernel_backend.engines.slurm.accounting import job_name
from kernel_backend.engines.slurm.commands import cleaned
from kernel_backend.launch.node import SHARES
from kernel_backend.model.cluster.input_cache import cache_variables
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.staging import SCRATCH, VARIABLE, StagingRequest

PROBE_MIN = 3  # time limit of a probe's job in minutes; short, so that backfill starts it early
PROBE_WAIT_S = 60  # seconds for which a probe's job waits for nodes
_OF_SBATCH = re.compile(
    r"--(?:array|error|export-file|get-user-env|input|no-requeue|open-mode|output|parsable|quiet|requeue|signal"
    r"|test-only|verbose|wait|wrap)(?:=|$)|-[aeioQvW]"
)


class Shape(NamedTuple):
    """Size of a gang: numbers of slots and nodes, and whether a slot is a GPU."""

    slots: int
    nodes: int
    gpus: bool

    @classmethod
    def of(cls, job: LaunchSpec) -> Shape:
        """Return the size of the gang that a launch spec describes.

        Of the placement only the numbers are used, not the nodes, as Slurm chooses these.
        """
        return cls(
            slots=sum(len(share.slots) for share in job.placement),
            nodes=max(1, len(job.placement)),
            gpus=any(share.kind != "cpu" for share in job.placement),
        )

    @property
    def equal(self) -> bool:
        """Return whether the slots can be divided equally among the nodes."""
        return self.slots % self.nodes == 0


def comment(service: str, job: LaunchSpec, digest: str) -> str:
    """Return the comment of a gang's job, by which the job is found in Slurm's queue.

    It has the names of service and pool, the key of the attempt, and the beginning of the digest of its secret token.
    Names of jobs are not unique, and after a database was restored, new attempts have keys of earlier ones.
    """
    return f"{comment_mark(service, job.pool)}{job.id}:{digest[:16]}"


def comment_mark(service: str, pool: str) -> str:
    """Return the text with which the comments of all Slurm jobs of one pool of a service begin."""
    return f"daylight:{service}:{pool}:"


def sbatch_options(job: LaunchSpec, pool: Pool, folder: Path, comment: str) -> list[str]:
    """Return the options of sbatch for a gang's job, which gets this `comment`; `folder` is the attempt's folder.

    The options in the pool's `extra` come last and so take precedence.
    """
    words = ["--parsable", "--no-requeue", f"--job-name={job_name(job.id)}", f"--comment={comment}"]
    log = "/dev/null" if job.staged else str(folder / "launcher.log").replace("%", "%%")
    cwd = "/" if job.staged else job.cwd
    words += [f"--chdir={cwd}", f"--output={log}", "--open-mode=append", "--input=/dev/null"]
    return [*words, *requested(job, pool), *pool.settings.extra]


def requested(job: LaunchSpec, pool: Pool) -> list[str]:
    """Return the options of sbatch that request nodes for a gang, without the options in the pool's `extra`."""
    excluded = [f"--exclude={','.join(sorted(job.excluded))}"] if job.excluded else []
    return [*_where(pool), *excluded, *_size(Shape.of(job), pool)]


def probe_options(pool: Pool, nodes: int, gpus: bool, name: str) -> list[str]:
    """Return the options of srun for the probe programs of a pool: one slot on each of `nodes` nodes.

    The options in the pool's `extra` are included, except those that only sbatch knows or that redirect output. The
    time limit and the wait for nodes come last, as the last of several equal options takes effect.
    """
    words = [f"--job-name={name}", "--chdir=/", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0"]
    extra = [each for each in pool.settings.extra if not _OF_SBATCH.match(each)]
    size = _size(Shape(slots=nodes, nodes=nodes, gpus=gpus), pool)
    return [*words, *_where(pool), *size, *extra, f"--time={PROBE_MIN}", f"--immediate={PROBE_WAIT_S}"]


def script(job: LaunchSpec, pool: Pool, folder: Path, scratch: Path) -> str:
    """Return the batch script of a gang's job: it starts a launcher on each node, and exits with their exit code.

    `folder` is the attempt's folder. `scratch` is a folder on the nodes' own disks, to which the script writes its
    output if no disk is shared with the service.
    """
    output = _own_output(scratch, job) if job.staged else ""
    return f"#!/bin/sh\n{output}{_step(job, pool, folder)}"


def step_script(job: LaunchSpec, pool: Pool, folder: Path) -> str:
    """Return the script that runs a gang as a step of a Slurm job that is kept for several gangs."""
    variables = _home(job, folder) | cache_variables(pool.settings)
    own = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    unset = [f"unset {name}" for name in withheld(job.config.env)]
    return "\n".join(["#!/bin/sh", f"cd {shlex.quote(job.cwd)} || exit 1", *own, *unset, _step(job, pool, folder)])


def _step(job: LaunchSpec, pool: Pool, folder: Path) -> str:
    """Return the last lines of a batch script, which replace the shell by srun (`exec srun ...`).

    srun then starts a launcher on each of the gang's nodes.
    """
    shape = Shape.of(job)
    module = ["kernel_backend.staging"] if job.staged else ["kernel_backend.launch", str(folder)]
    launcher = [job.python, "-P", "-m", *module, "--step", "slurm"]
    step = ["srun", "--mpi=none", "--input=none", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    step += [f"--nodes={shape.nodes}", f"--ntasks={shape.nodes}", "--ntasks-per-node=1"]
    if shape.equal:  # if the nodes' shares differ, each task may use all CPUs of the job on its node
        step.append(f"--cpus-per-task={_cpus(shape, pool)}")
    return f"{_shares(shape)}exec {shlex.join([*step, *launcher])}\n"


def job_env(
    base: Mapping[str, str], job: LaunchSpec, pool: Pool, folder: Path, scratch: Path, token: str
) -> dict[str, str]:
    """Return the environment of sbatch, which passes it on to the job; `base` is that of the service.

    DAYLIGHT_SLOTS is left out, as it is the number of slots of the service's machine. Launchers on nodes without a
    shared disk fetch the attempt's files into `scratch`, and authenticate by `token`.
    """
    here = _home(job, folder)
    own = _staging(job, scratch, token) if job.staged else here
    return cleaned(base, (*withheld(job.config.env), "DAYLIGHT_SLOTS", *here)) | own | cache_variables(pool.settings)


def scratch_folder(base: Mapping[str, str], pool: Pool, service: str) -> Path:
    """Return the folder on the nodes' own disks for files of a service's trainings.

    `base` is the environment of the jobs.

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
    """Return the path, on a job's first node, of the file to which the job prints before its launchers run."""
    return scratch / f"{job.id}.out"


def _home(job: LaunchSpec, folder: Path) -> dict[str, str]:
    return {MARK: str(folder), "DAYLIGHT_HOME": job.home}


def _staging(job: LaunchSpec, scratch: Path, token: str) -> dict[str, str]:
    request = StagingRequest(key=str(job.id), urls=job.service_urls, uid=job.service_uid, token=token)
    return {VARIABLE: request.model_dump_json(), SCRATCH: str(scratch)}


def _own_output(scratch: Path, job: LaunchSpec) -> str:
    """Return script lines that redirect all output to a file in `scratch` that only the job's user can read.

    If the file cannot be written, the output is not redirected.
    """
    folder, output = shlex.quote(str(scratch)), shlex.quote(str(job_output(scratch, job)))
    # If the disk is full or read-only, the launchers report it to the service.
    return f"umask 077\nmkdir -p {folder} && (: >>{output}) && exec >>{output} 2>&1\n"


def _shares(shape: Shape) -> str:
    """Return the script line that sets DAYLIGHT_SLOTS_OF_NODES, the number of CPU slots of each node.

    "" if slots are GPUs, which launchers detect themselves.
    """
    if shape.gpus:
        return ""
    if shape.equal:
        return f"export {SHARES}='{shape.slots // shape.nodes}(x{shape.nodes})'\n"
    # Expanded before srun, which sets the variable to the step's own value: one task on each node.
    return f'export {SHARES}="$SLURM_TASKS_PER_NODE"\n'


def _where(pool: Pool) -> list[str]:
    settings = pool.settings
    named = {"partition": settings.partition, "account": settings.account, "qos": settings.qos}
    named["constraint"] = settings.constraint
    return [f"--{name}={value}" for name, value in named.items() if value]


def _cpus(shape: Shape, pool: Pool) -> int:
    return shape.slots // shape.nodes * pool.settings.cpus_per_slot


def _size(shape: Shape, pool: Pool) -> list[str]:
    """Return the options of sbatch that set a gang's size: nodes, tasks, CPUs, GPUs and memory.

    Each node gets the same share if the slots can be divided equally; else Slurm chooses the shares.
    """
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
