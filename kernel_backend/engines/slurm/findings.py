"""Derive findings about a Slurm pool: its partition, and why probe programs did not start or answer. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.engines.probing.findings import EngineTerms, ProbeSetup, count, node_findings, not_answered, red
from kernel_backend.engines.slurm.parse import never, refusal_advice
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.probe import NodeProbe
from kernel_backend.model.resources import Node

TERMS = EngineTerms(
    engine="Slurm",
    versions="keep one environment on a file system that all nodes see, or install the same versions there",
    leave_out="leave it out: `--exclude` in `extra`",
    missing_gpus="look at nvidia-smi and gres.conf there, or leave the node out: `--exclude` in `extra`",
    unwanted_gpus="set `gpus` of the pool, or choose nodes without GPUs by `partition` or `constraint`",
    missing_cpus="look at CPUs= of the node in slurm.conf, or leave it out: `--exclude` in `extra`",
)
_DOWN = "`scontrol show node NAME` says why a node is down"


class ProbeJob(NamedTuple):
    """State of the Slurm job that runs the probe programs of a check."""

    started: float | None = None  # seconds from the start of srun to its first line; None without a line
    errors: str = ""  # error output of srun and the probes
    reason: str = ""  # Slurm's last reason why the job was pending


def partition(pool: Pool, nodes: Sequence[Node], states: Mapping[str, int]) -> PoolFinding:
    """Return the finding about a pool's partition; `states` has the number of nodes in each state."""
    name = pool.settings.partition or "default partition"
    if not nodes:
        todo = "change `partition` of the pool: `sinfo -s` lists them"
        return PoolFinding(name="partition", ok=False, says=f"{name}: Slurm knows no nodes of it", todo=todo)
    gpus, slots = any(node.kind != "cpu" for node in nodes), sum(node.slots for node in nodes)
    counted = ", ".join(f"{number} {state}" for state, number in states.items())
    of = f"GPUs, {', '.join(sorted({each for node in nodes for each in node.devices}))}" if gpus else "CPUs"
    says = f"{name}: {count(len(nodes), 'node')} ({counted}), {count(slots, 'slot')} ({of})"
    if not slots:
        settings = pool.settings
        todo = "change `gpus` or `gpu_type`" if settings.gpus or settings.gpu_type else "lower `cpus_per_slot`"
        return PoolFinding(name="partition", ok=False, says=says, todo=f"{todo} of the pool")
    usable = [node for node in nodes if node.healthy]
    return PoolFinding(name="partition", ok=bool(usable), says=says, todo="" if len(usable) == len(nodes) else _DOWN)


def not_started(setup: ProbeSetup, job: ProbeJob, waited: float) -> PoolFinding:
    """Return the finding on why no probe program started: no free node, a refused job, or no interpreter.

    `waited` is the number of seconds since the job was submitted.
    """
    where = setup.pool.settings.partition or "the default partition"
    if never(job.reason):
        return red("probe", f"Slurm: {job.reason}", never(job.reason))
    if "are busy" in job.errors or not job.errors:
        why = f" (Slurm: {job.reason})" if job.reason not in ("", "None") else ""
        nodes = "no node" if setup.nodes == 1 else f"no {setup.nodes} nodes"
        says = f"{nodes} of {where} became free within {waited:.0f} s{why}: the rest was not checked"
        free = f"-p {where}" if setup.pool.settings.partition else ""
        return red("probe", says, f"try again when `sinfo {free}`".rstrip(" `") + "` shows idle nodes")
    if (failed := _failed(setup, job.errors)) is not None:
        return failed
    return red("probe", f"Slurm: {job.errors}", refusal_advice(job.errors))


def findings(setup: ProbeSetup, job: ProbeJob, probes: Sequence[NodeProbe]) -> list[PoolFinding]:
    """Return the findings of a check whose probe programs started: nodes without an answer first, then the answers."""
    says = f"{job.started or 0.0:.1f} s from srun to the first line of the probe"
    start = PoolFinding(name="start", ok=True, says=says)
    return [*_unanswered(setup, job, probes), *node_findings(setup, probes), start]


def _unanswered(setup: ProbeSetup, job: ProbeJob, probes: Sequence[NodeProbe]) -> Iterator[PoolFinding]:
    if len(probes) < setup.nodes:
        says, failed = not_answered(setup, probes), _failed(setup, job.errors)
        why = failed.says if failed is not None else job.errors
        todo = failed.todo if failed is not None else f"look at that node, or {setup.terms.leave_out}"
        yield red("probe", f"{says}: {why}" if why else says, todo)


def _failed(setup: ProbeSetup, errors: str) -> PoolFinding | None:
    """Return the finding that a node could not run the probe program.

    None if `errors`, the error output of srun, shows another problem.
    """
    if "execve" in errors or "No such file or directory" in errors:
        return red("probe", f"{setup.python} is not there on a node", TERMS.versions)
    if "No module named" in errors:
        missing = errors[errors.index("No module named") :].partition(";")[0].strip()
        return red("probe", f"{setup.python} on a node: {missing}", TERMS.versions)
    return None
