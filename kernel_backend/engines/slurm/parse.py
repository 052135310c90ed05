"""Parse what Slurm's commands print (as text, since their JSON differs between versions): pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.resources import Node

SQUEUE = "%i|%T|%r|%N|%S|%L|%k"  # the comment is last, as it may contain the separator
SINFO = "%N|%P|%T|%c|%G|%E"  # the reason is last, as it may contain the separator
PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
ENDED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED"}
    | {"TIMEOUT"}
)
_SITE = "this is a limit of your site"
# Pending reasons with which a job never starts, and what the user should change.
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
_POLICY = "Job violates accounting/QOS policy"
# Names of limits on the number of submitted jobs: the job fits once others have ended. Other limits that sbatch
# names are exceeded by the job alone.
_TOO_MANY = re.compile(r"(?:Assoc|QOS)\w*Submit\w*", re.IGNORECASE)
# Lines by which srun reports progress, not errors.
_PROGRESS = re.compile(
    "lacks support for cpu binding|queued and waiting|has been allocated|Terminating StepId|not available now"
)
_GPU = re.compile(r"gpu(?::([^:,()]+))?:(\d+)(?:\(|,|$)")
_DOWN = re.compile(r"^(?:down|drain|fail|unknown|maint|error|inval|reboot)|\*$")


class SlurmJob(NamedTuple):
    """Fields of a Slurm job, as squeue lists it."""

    id: str
    state: str
    reason: str
    nodes: str  # such as `n[1-2]`
    start: str  # when it has started, or is expected to; "N/A" if unknown
    comment: str
    left: str = ""  # time until its limit, such as `1-03:59:12`; a word if it has none


Jobs = Mapping[str, SlurmJob]  # by id
NO_JOBS: Jobs = MappingProxyType({})


def parse_squeue(text: str) -> Jobs:
    """Return the jobs in the output of `squeue -h -o SQUEUE`, by job id."""
    rows = (line.split("|", 6) for line in text.splitlines())
    found = (
        SlurmJob(id, state, reason, nodes, start, comment, left)
        for id, state, reason, nodes, start, left, comment in (row for row in rows if len(row) == 7)
    )
    return {job.id: job for job in found}


def parse_job_id(text: str) -> str:
    """Return the job id in the output of `sbatch --parsable`, without the cluster's name; raise ValueError if none."""
    lines = text.strip().splitlines()
    found = lines[-1].partition(";")[0].strip() if lines else ""  # a site's hook may print lines before it
    if not found.isdigit():
        raise ValueError(f"sbatch printed no job id: {text.strip()[:200]!r}")
    return found


def parse_time(text: str) -> float | None:
    """Return the seconds in a duration as Slurm prints it; None for a word such as UNLIMITED.

    Examples
    --------
    >>> parse_time("1-03:59:12"), parse_time("9:58"), parse_time("infinite")
    (100752.0, 598.0, None)
    """
    days, _, rest = text.strip().rpartition("-")
    parts = [days or "0", *rest.split(":")]
    if not all(part.isdigit() for part in parts):
        return None
    hours, minutes, seconds = ([0, 0, 0] + [int(part) for part in parts[1:]])[-3:]
    return float(((int(parts[0]) * 24 + hours) * 60 + minutes) * 60 + seconds)


def parse_limit(text: str) -> float | None:
    """Return the time limit in seconds from the output of `sinfo -h -o '%P|%l'`; None if there is none.

    If the output has several partitions, the default one counts, whose name ends with `*`.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 1]
    rows.sort(key=lambda row: not row[0].endswith("*"))
    return parse_time(rows[0][1]) if rows else None


def parse_sinfo(text: str, pool: Pool) -> list[Node]:
    """Return the nodes of a pool from the output of `sinfo -N -h -o SINFO`.

    If the pool sets `most_slots`, the nodes have at most that many slots in total.
    """
    settings, rows = pool.settings, _rows(text, pool)
    gpus = settings.gpus if settings.gpus is not None else any(gpu_count(row[4], settings.gpu_type) for row in rows)
    nodes, left = dict[str, Node](), settings.most_slots
    rows.sort(key=lambda row: bool(_DOWN.search(row[2])))  # nodes that are down do not use up `most_slots`
    for name, _, state, cpus, gres, reason in rows:
        if name in nodes:  # a node may be in several partitions
            continue
        cores = int(cpus.rstrip("+"))
        slots = gpu_count(gres, settings.gpu_type) if gpus else cores // settings.cpus_per_slot
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
            state=state,
            reason="" if reason == "none" else reason,
        )
    return list(nodes.values())


def parse_states(text: str, pool: Pool) -> list[str]:
    """Return the state of each node of a pool, such as `idle`, from the output of `sinfo -N -h -o SINFO`."""
    return list({row[0]: row[2] for row in _rows(text, pool)}.values())


def was_preempted(text: str) -> bool:
    """Return whether the output of `scontrol show job` contains the time of a preemption."""
    return bool(re.search(r"\bPreemptTime=\d", text))


def never(reason: str) -> str:
    """Return advice for users on a pending job that can never start; "" if the job may start.

    `reason` is Slurm's reason why the job is pending, such as `PartitionTimeLimit`.
    """
    return _NEVER.get(reason) or (f"{_SITE} for one job: request less" if _PER_JOB.fullmatch(reason) else "")


def slurm_text(text: str) -> str:
    """Return a text with the prefix `Slurm: `, unless it begins with `Slurm` already."""
    return text if text.startswith("Slurm") else f"Slurm: {text}"


def wait_text(job: SlurmJob, now: datetime) -> str:
    """Return a text for users on why a job is pending, such as `Slurm: Resources, expected to start 14:20`."""
    if job.state == "CONFIGURING":
        return "Slurm: its nodes are being booted"
    reason = "submitted" if job.reason in ("None", "") else job.reason
    about = f" ({_whose(reason)})" if _LIMIT.fullmatch(reason) else ""
    about = f" (scontrol release {job.id} lifts it)" if reason == "JobHeldUser" else about
    return f"Slurm: {reason}{about}{_expected(job.start, now)}"


def no_answer(errors: str) -> bool:
    """Return whether a command of Slurm failed because Slurm does not answer now, so that it can be tried again.

    `errors` is the error output of the command.
    """
    return bool(_NO_ANSWER.search(errors))


def too_many(refusal: str) -> bool:
    """Return whether sbatch refused a job because the user has too many jobs in the queue at present.

    Examples
    --------
    >>> too_many("AssocMaxSubmitJobLimit; Job violates accounting/QOS policy (job submit limit, ...)")
    True
    >>> too_many("QOSMaxGRESPerUser; Job violates accounting/QOS policy (job submit limit, ...)")
    False
    """
    named = _LIMIT.match(refusal)
    return bool(_TOO_MANY.fullmatch(named[0])) if named is not None else _POLICY in refusal


def limit_text(refusal: str) -> str:
    """Return the name of the limit in a refusal by sbatch, and to whom the limit applies.

    A refusal that names no limit is returned unchanged.

    Examples
    --------
    >>> limit_text("QOSMaxGRESPerUser; Job violates accounting/QOS policy (job submit limit, ...)")
    "QOSMaxGRESPerUser (your site's limit for you)"
    """
    named = _LIMIT.match(refusal)
    if named is None:
        return refusal
    whose = "your site's limit of submitted jobs" if too_many(refusal) else _whose(named[0])
    return f"{named[0]} ({whose})"


def sentence(errors: str) -> str:
    """Return the error output of a Slurm command as one line, without the prefixes of its lines."""
    lines = [re.sub(r"^(?:s\w+: )?(?:slurm_\w+:? )?(?:error: )?", "", line.strip()) for line in errors.splitlines()]
    return "; ".join(dict.fromkeys(_informative(lines)))[:1000]


def refusal_advice(refusal: str) -> str:
    """Return advice for users on what to change in a pool whose job sbatch has refused with this message."""
    for words, advice in (
        (_POLICY.lower(), "request less, or change `qos` or `account` of the pool: `sacctmgr show qos` lists limits"),
        ("user id", "ask the site whether you may use this partition, or change `partition` of the pool"),
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
    """Return the six fields of each line about the pool's partition, from the output of `sinfo -N -h -o SINFO`.

    If the pool names no partition, the lines about the default one are returned.
    """
    rows = [row for line in text.splitlines() if len(row := line.split("|", 5)) == 6]
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


def gpu_count(gres: str, kind: str | None) -> int:
    """Return how many GPUs there are in a list of generic resources as Slurm prints it.

    With `kind`, only GPUs of this type count.

    Examples
    --------
    >>> gpu_count("gpu:a100:2(IDX:0-1),gpu:h100:1(IDX:4)", "a100"), gpu_count("gres/gpu:3", None)
    (2, 3)
    """
    return sum(int(number) for name, number in _GPU.findall(gres) if kind is None or name == kind)


def _gpu_name(gres: str) -> str:
    found = _GPU.search(gres)
    return (found[1] if found else None) or "gpu"
