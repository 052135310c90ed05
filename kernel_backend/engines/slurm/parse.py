"""Parse what Slurm's commands print: pure functions. Its JSON differs between versions, and these formats do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.resources import Node

SQUEUE = "%i|%T|%r|%N|%S|%k"  # the comment is last, as it may hold anything
SINFO = "%N|%P|%T|%c|%G"
PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED"}
    | {"TIMEOUT"}
)
_SITE = "this is a limit of your site"
# Reasons for which a job waits for ever, and what to change.
_NEVER = {
    "PartitionConfig": "the partition has no such nodes: request fewer slots or nodes, or choose another pool",
    "PartitionNodeLimit": "the partition allows fewer nodes: request fewer, or choose another pool",
    "PartitionTimeLimit": "the partition allows less time: change --time in the pool's `extra`",
    "BadConstraints": "no node is like that: change `constraint`, `gpu_type` or `extra` of the pool",
    "InvalidAccount": "change `account` of the pool: `sacctmgr show assoc user=$USER` lists yours",
    "AccountNotAllowed": "the partition refuses this account: change `account` or `partition` of the pool",
    "InvalidQOS": "change `qos` of the pool: `sacctmgr show assoc user=$USER format=qos` lists yours",
    "QOSNotAllowed": "the partition refuses this QOS: change `qos` or `partition` of the pool",
}
_PER_JOB = re.compile(r"(?:Assoc|QOS)\w*PerJob\w*|QOSMin\w+")
_LIMIT = re.compile(r"(?:Assoc|QOS)\w*")
_NO_ANSWER = re.compile(
    "unable to contact slurm controller|socket timed out|connection (?:refused|timed out)|zero bytes|communication"
    "|standby mode|temporarily un|try again|munge|authentication|unable to establish|resolve|in maintenance",
    re.IGNORECASE,
)
# A limit of the number of jobs that one may have in the queue, which ends by itself.
_TOO_MANY = re.compile(r"Max\w*SubmitJob|SubmitJobLimit|GrpSubmit|MaxSubmit|job submit limit", re.IGNORECASE)
# What srun says besides: of how a job goes on.
_PROGRESS = re.compile(
    "lacks support for cpu binding|queued and waiting|has been allocated|Terminating StepId|not available now"
)
_GPU = re.compile(r"gpu(?::([^:,()]+))?:(\d+)(?:\(|,|$)")
_DOWN = re.compile(r"^(?:down|drain|fail|unknown|maint|error|inval|reboot)|\*$")


class SlurmJob(NamedTuple):
    """A job as squeue shows it."""

    id: str
    state: str
    reason: str
    nodes: str  # such as `n[1-2]`
    start: str  # when it has started, or is expected to; "N/A" if unknown
    comment: str


Jobs = Mapping[str, SlurmJob]  # by id
NO_JOBS: Jobs = MappingProxyType({})


def parse_squeue(text: str) -> Jobs:
    """Return the jobs in the output of `squeue -h -o SQUEUE`, by id."""
    rows = (line.split("|", 5) for line in text.splitlines())
    return {row[0]: SlurmJob(*row) for row in rows if len(row) == 6}


def parse_job_id(text: str) -> str:
    """Return the job id that `sbatch --parsable` prints, without the name of a cluster; raises ValueError."""
    lines = text.strip().splitlines()
    found = lines[-1].partition(";")[0].strip() if lines else ""  # a site's hook may print lines before it
    if not found.isdigit():
        raise ValueError(f"sbatch printed no job id: {text.strip()[:200]!r}")
    return found


def parse_sinfo(text: str, pool: Pool) -> list[Node]:
    """Return the nodes of a pool in the output of `sinfo -N -h -o SINFO`, cut to its largest number of slots."""
    settings, rows = pool.settings, _rows(text, pool)
    gpus = settings.gpus if settings.gpus is not None else any(_gpus(row[4], settings.gpu_type) for row in rows)
    nodes, left = dict[str, Node](), settings.most_slots
    rows.sort(key=lambda row: bool(_DOWN.search(row[2])))  # nodes that are down do not use up `most_slots`
    for name, _, state, cpus, gres in rows:
        if name in nodes:  # in several partitions
            continue
        cores = int(cpus.rstrip("+"))
        slots = _gpus(gres, settings.gpu_type) if gpus else cores // settings.cpus_per_slot
        if left is not None:
            slots = min(slots, left)
            left -= slots
        nodes[name] = Node(
            name=name,
            kind="cuda" if gpus else "cpu",
            address=name,
            slots=slots,
            cores=cores,
            devices=(_gpu_name(gres),) * slots if gpus else (),
            healthy=not _DOWN.search(state),
            pool=pool.name,
            drained="drain" in state,
        )
    return list(nodes.values())


def parse_states(text: str, pool: Pool) -> list[str]:
    """Return the state of each node of a pool in the output of `sinfo -N -h -o SINFO`."""
    return list({row[0]: row[2] for row in _rows(text, pool)}.values())


def was_preempted(text: str) -> bool:
    """Return whether the output of `scontrol show job` has the time of a preemption."""
    return bool(re.search(r"\bPreemptTime=\d", text))


def never(reason: str) -> str:
    """Return what to change if a pending job with this reason can never start; "" if it may."""
    return _NEVER.get(reason) or (f"{_SITE} for one job: request less" if _PER_JOB.fullmatch(reason) else "")


def wait_text(job: SlurmJob, now: datetime) -> str:
    """Return why a job is pending, such as `Slurm: Resources, expected to start 14:20`."""
    if job.state == "CONFIGURING":
        return "Slurm: its nodes are being booted"
    reason = "submitted" if job.reason in ("None", "") else job.reason
    about = f" ({_whose(reason)})" if _LIMIT.fullmatch(reason) else ""
    about = f" (scontrol release {job.id} lifts it)" if reason == "JobHeldUser" else about
    return f"Slurm: {reason}{about}{_expected(job.start, now)}"


def no_answer(errors: str) -> bool:
    """Return whether a command failed because Slurm does not answer now, so that it may be repeated later."""
    return bool(_NO_ANSWER.search(errors))


def too_many(refusal: str) -> bool:
    """Return whether sbatch refuses a job only while the user has as many in the queue as their site allows."""
    return bool(_TOO_MANY.search(refusal))


def sentence(errors: str) -> str:
    """Return what a command of Slurm complains about, in a line without its prefixes."""
    lines = [re.sub(r"^(?:s\w+: )?(?:slurm_\w+:? )?(?:error: )?", "", line.strip()) for line in errors.splitlines()]
    return "; ".join(dict.fromkeys(_informative(lines)))[:1000]


def refusal_advice(refusal: str) -> str:
    """Return what to change in a pool whose jobs sbatch refuses with this sentence."""
    for words, advice in (
        ("account", "change `account` or `partition` of the pool: `sacctmgr show assoc user=$USER` lists yours"),
        ("partition", "change `partition` of the pool: `sinfo -s` lists them"),
        ("qos", "change `qos` of the pool, or request less"),
        ("feature", "change `constraint` of the pool: `sinfo -o %f` lists them"),
        ("gres", "change `gpu_type` of the pool, or request fewer slots: `sinfo -o %G` lists what there is"),
        ("option", "change `extra` of the pool"),
        ("memory", "change `memory_per_slot` of the pool, or request fewer slots"),
    ):
        if words in refusal.lower():
            return advice
    return "request fewer slots or nodes, or change the settings of the pool"


def _rows(text: str, pool: Pool) -> list[list[str]]:
    """Return the rows of a pool's partition; without one, of the site's default."""
    rows = [row for line in text.splitlines() if len(row := line.split("|")) == 5]
    default = [row for row in rows if row[1].endswith("*")]
    return default if pool.settings.partition is None and default else rows


def _informative(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if line and not line.startswith("Try ") and not _PROGRESS.search(line):
            yield re.sub("^(?:Batch job submission failed|Unable to allocate resources): ", "", line)


def _whose(reason: str) -> str:
    if "PerUser" in reason:
        return "your site's limit for you"
    return "your site's limit for your account" if reason.startswith("Assoc") else "your site's limit for this QOS"


def _expected(start: str, now: datetime) -> str:
    try:
        at = datetime.fromisoformat(start)
    except ValueError:  # N/A, Unknown
        return ""
    if at <= now:
        return ""
    return f", expected to start {at:%H:%M}" if at.date() == now.date() else f", expected to start {at:%Y-%m-%d %H:%M}"


def _gpus(gres: str, kind: str | None) -> int:
    return sum(int(number) for name, number in _GPU.findall(gres) if kind is None or name == kind)


def _gpu_name(gres: str) -> str:
    found = _GPU.search(gres)
    return (found[1] if found else None) or "gpu"
