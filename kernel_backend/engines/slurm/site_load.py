"""Read which slots of a partition are free, and which pending jobs of all users wait for its nodes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from kernel_backend.engines.slurm.commands import run
from kernel_backend.engines.slurm.parse import gpu_count
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.cluster.site_load import OtherRequest, SiteLoad
from kernel_backend.model.resources import Node

RULES_S = 600.0  # for which the rules of a site are cached
ENDING_S = 10.0  # time for own jobs to leave their nodes, where an epilog may take long
JOBS = "%i|%u|%T|%r|%C|%D|%b|%h|%k"  # the comment is last, as it may contain the separator
_POLL_S = 0.2
# Reasons of pending jobs that wait for nodes. Others wait for a limit, a date or another job, to which no node helps.
_FOR_NODES = frozenset({"Resources", "Priority", "None", ""})
_FIELD = re.compile(r"(\w+)=(\S*)")
_HIDES_JOBS = (
    "the site hides the jobs of other users (PrivateData=jobs), so that Daylight cannot see whether they wait for "
    "slots: ask the site to let the service's user see them"
)


class SiteRules(NamedTuple):
    """Slurm settings of a site that matter for gangs that grow and shrink with the load of a partition."""

    private_jobs: bool = False  # users see only their own jobs
    whole_nodes: bool = False  # a job gets whole nodes (OverSubscribe=EXCLUSIVE)
    partitions: tuple[str, ...] = ()  # all that share a node with the pool: jobs of each may wait for its nodes


class NodeUse(NamedTuple):
    """Use of a node, as `scontrol -d show node` prints it."""

    name: str
    partitions: tuple[str, ...]
    idle_cpus: int
    gres_used: str  # such as `gpu:a100:2(IDX:0-1)`


class PartitionLoad:
    """Reader of the load of a pool's partition: free slots, and jobs of others that wait for slots.

    Jobs whose comments begin with `mark` are the pool's own.
    """

    def __init__(self, pool: Pool, mark: str) -> None:
        self._pool, self._mark = pool, mark
        self._rules, self._ruled_at = SiteRules(), float("-inf")

    async def read(self, nodes: Sequence[Node]) -> SiteLoad:
        """Return the load of these nodes now; raise EngineUnavailable if Slurm does not answer, or SlurmRefused.

        If the site hides the jobs of other users, the result has only the field `problem`, which says so.
        """
        at, rules = time.time(), await self._newest_rules(nodes)
        if rules.private_jobs:
            return SiteLoad(at=at, problem=_HIDES_JOBS, hidden=True)
        # Jobs first: one that starts meanwhile counts twice, not never.
        jobs = await self._jobs(rules.partitions)
        free = free_slots(parse_nodes(await run("scontrol", "-d", "-o", "show", "node")), nodes, self._pool)
        waiting = tuple(pending(jobs, self._pool, nodes, self._mark))
        return SiteLoad(at=at, free=free, waiting=waiting, whole_nodes=rules.whole_nodes)

    async def _jobs(self, partitions: Sequence[str]) -> str:
        """Return what squeue prints about jobs in these partitions, after a wait of up to 10 s for the pool's own jobs.

        It waits for own jobs that have ended and are leaving their nodes, whose slots would otherwise not count as
        free.
        """
        deadline, where = time.monotonic() + ENDING_S, ["-p", ",".join(partitions)] if partitions else []
        while True:
            text = await run("squeue", "-h", "-t", "PENDING,COMPLETING", *where, "-o", JOBS)
            if not is_ending(text, self._mark) or time.monotonic() > deadline:
                return text
            await asyncio.sleep(_POLL_S)

    async def _newest_rules(self, nodes: Sequence[Node]) -> SiteRules:
        if time.monotonic() > self._ruled_at + RULES_S:
            partition = self._pool.settings.partition
            where = ["-p", partition] if partition else []
            config = await run("scontrol", "show", "config")
            shown = await run("sinfo", "-h", *where, "-o", "%P|%h")
            use = parse_nodes(await run("scontrol", "-d", "-o", "show", "node"))
            shared = partitions_of(use, {node.engine_name for node in nodes})
            self._rules = SiteRules(os.geteuid() != 0 and hides_jobs(config), gives_whole_nodes(shown), tuple(shared))
            self._ruled_at = time.monotonic()
        return self._rules


def is_ending(text: str, mark: str) -> bool:
    """Return whether any of the pool's own jobs is leaving its nodes, from the output of `squeue -h -o JOBS`.

    The comments of own jobs begin with `mark`.
    """
    return any(row[2] == "COMPLETING" and row[8].startswith(mark) for row in _rows(text))


def hides_jobs(config: str) -> bool:
    """Return whether users see only their own jobs, from the output of `scontrol show config`.

    Examples
    --------
    >>> hides_jobs("PriorityType = priority/basic\\nPrivateData = accounts,jobs")
    True
    """
    found = re.search(r"^PrivateData\s*=\s*(\S+)", config, re.MULTILINE)
    return found is not None and "jobs" in found[1].split(",")


def gives_whole_nodes(text: str) -> bool:
    """Return whether every job gets whole nodes, from the output of `sinfo -h -o '%P|%h'`.

    If the output has several partitions, the default one counts, whose name ends with `*`.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 1]
    rows.sort(key=lambda row: not row[0].endswith("*"))
    return bool(rows) and rows[0][1].startswith("EXCLUSIVE")


def parse_nodes(text: str) -> list[NodeUse]:
    """Return the use of each node from the output of `scontrol -d -o show node`."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        total, taken = fields.get("CPUTot", ""), fields.get("CPUAlloc", "")
        if fields.get("NodeName") and total.isdigit() and taken.isdigit():
            partitions = tuple(filter(None, fields.get("Partitions", "").split(",")))
            idle = int(total) - int(taken)
            found.append(NodeUse(fields["NodeName"], partitions, idle, fields.get("GresUsed", "")))
    return found


def partitions_of(use: Sequence[NodeUse], nodes: Collection[str]) -> list[str]:
    """Return the names of all partitions to which any of the nodes named in `nodes` belongs."""
    return sorted({name for each in use if each.name in nodes for name in each.partitions})


def free_slots(use: Sequence[NodeUse], nodes: Sequence[Node], pool: Pool) -> dict[str, int]:
    """Return how many slots are free on each node: each needs free CPUs and, where slots are GPUs, a free GPU.

    Nodes that are unhealthy or drained are left out.
    """
    by_name = {each.name: each for each in use}
    found: dict[str, int] = {}
    for node in nodes:
        seen = by_name.get(node.engine_name)
        if seen is not None and node.healthy and not node.drained:
            slots = seen.idle_cpus // pool.settings.cpus_per_slot
            if node.kind != "cpu":
                slots = min(slots, node.slots - gpu_count(seen.gres_used, pool.settings.gpu_type))
            found[node.engine_name] = max(0, min(slots, node.slots))
    return found


def pending(text: str, pool: Pool, nodes: Sequence[Node], mark: str) -> Iterator[OtherRequest]:
    """Yield the jobs of others that wait for nodes, with their slots, from the output of `squeue -h -o JOBS`.

    A job counts for as many slots as its CPUs or its GPUs correspond to, whichever is more, but for no more than its
    number of nodes times the slots of the largest node; if it wants whole nodes, for exactly that number. Jobs whose
    comments begin with `mark` are the pool's own and are left out.
    """
    per_slot, largest = pool.settings.cpus_per_slot, max((node.slots for node in nodes), default=0)
    for id, user, state, reason, cpus, count, gres, shares, comment in _rows(text):
        if state != "PENDING" or reason not in _FOR_NODES or comment.startswith(mark):
            continue
        number = int(count) if count.isdigit() else 1
        by_cpus = -(-int(cpus) // per_slot) if cpus.isdigit() else 1
        slots = max(by_cpus, number * gpu_count(gres, pool.settings.gpu_type))
        most = max(1, number * largest)
        yield OtherRequest(
            name=f"job {id} of {user}", slots=most if shares == "NO" else min(max(1, slots), most), one_node=number == 1
        )


def _rows(text: str) -> Iterator[list[str]]:
    return (row for line in text.splitlines() if len(row := line.split("|", 8)) == 9)
