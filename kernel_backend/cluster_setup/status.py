"""Read the states of a cluster's nodes from the output of sinfo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SINFO = ("sinfo", "-N", "-h", "-o", "%N|%T|%c|%m|%G|%v|%E")
WORKING = ("idle", "mixed", "allocated", "completing")


class NodeStatus(NamedTuple):
    """State of one node as sinfo lists it."""

    name: str
    state: str
    cpus: str
    memory_mib: str
    gpus: str
    version: str
    reason: str

    @property
    def works(self) -> bool:
        """Return True if jobs can run on the node; a `*` after the state means that the node does not answer."""
        return self.state in WORKING


def parse_nodes(text: str) -> list[NodeStatus]:
    """Return the nodes in the output of sinfo, without duplicates."""
    found = {}
    for line in text.splitlines():
        if line.count("|") >= 6:
            node = NodeStatus(*line.split("|", 6))
            gpus, reason = node.gpus.replace("(null)", ""), "" if node.reason == "none" else node.reason
            found[node.name] = node._replace(gpus=gpus, reason=reason)
    return list(found.values())


def node_todo(node: NodeStatus, head: str) -> str:
    """Return what to do about a node that cannot run jobs; "" if it can."""
    if node.works:
        return ""
    if node.state.startswith("drain"):
        return f"mend what the reason says, then: scontrol update nodename={node.name} state=resume"
    if node.name == head:
        return f"write daylight cluster start on {head}"
    return f"write daylight cluster start on {node.name}, and daylight cluster status there if it does not come back"


def different_versions(nodes: Sequence[NodeStatus]) -> str:
    """Return a text with the versions of Slurm on the nodes; "" if all have the same."""
    versions = {node.version for node in nodes if node.version}
    return ", ".join(sorted(versions)) if len(versions) > 1 else ""
