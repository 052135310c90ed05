"""Read the states of a cluster's nodes from the output of Slurm's commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

SINFO = ("sinfo", "-N", "-h", "-o", "%N|%T|%c|%m|%G|%v|%E")
WORKING = ("idle", "mixed", "allocated", "completing")


class NodeStatus(NamedTuple):
    """State of one node, as sinfo lists it."""

    name: str
    state: str
    cpus: str
    memory_mib: str
    gpus: str
    version: str
    reason: str

    @property
    def works(self) -> bool:
        """Return True if the node can run jobs; Slurm adds `*` to the state of a node that does not answer."""
        return self.state in WORKING


def parse_nodes(text: str) -> list[NodeStatus]:
    """Return the nodes in the output of the command SINFO; a node in several partitions is returned once."""
    found = {}
    for line in text.splitlines():
        if line.count("|") >= 6:
            node = NodeStatus(*line.split("|", 6))
            gpus, reason = node.gpus.replace("(null)", ""), "" if node.reason == "none" else node.reason
            found[node.name] = node._replace(gpus=gpus, reason=reason)
    return list(found.values())


def slurmd_start(text: str) -> float:
    """Return when the slurmd that a node has registered at the head was started, from `scontrol show node`.

    A slurmd that was restarted since then is not taken into account before it has registered itself.

    Parameters
    ----------
    text : str
        Output of `scontrol show node NAME`, with times in this process' time zone.

    Returns
    -------
    float
        Seconds since 1970, whole; 0.0 if the node never registered.

    Examples
    --------
    >>> slurmd_start("NodeName=n1 BootTime=None SlurmdStartTime=None")
    0.0
    """
    found = re.search(r"\bSlurmdStartTime=(\d{4}-\S+)", text)
    return datetime.fromisoformat(found[1]).timestamp() if found else 0.0


def node_todo(node: NodeStatus, head: str) -> str:
    """Return advice on a node that cannot run jobs; "" if it can. `head` is the name of the head."""
    if node.works:
        return ""
    if node.state.startswith("drain"):
        return f"mend what the reason says, then: scontrol update nodename={node.name} state=resume"
    if node.name == head:
        return f"write daylight cluster start on {head}"
    return f"write daylight cluster start on {node.name}, and daylight cluster status there if it does not come back"


def different_versions(nodes: Sequence[NodeStatus]) -> str:
    """Return the versions of Slurm on the nodes as text, if they are not all the same; else ""."""
    versions = {node.version for node in nodes if node.version}
    return ", ".join(sorted(versions)) if len(versions) > 1 else ""
