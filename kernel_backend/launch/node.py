"""Tell which node of its gang a launcher is on, and what it has there, from the variables of the engine."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

from kernel_backend import devices
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.launch.nodes import NodeIndex
from kernel_backend.model.resources import Node

SHARES = "DAYLIGHT_SLOTS_OF_NODES"  # slots of each node, such as `4(x2),3`, where a slot is no device
# Variables by which frameworks would take a rank for a task of the engine: Lightning, for example, would let Slurm's
# number of tasks, which is that of the launchers, decide on the world size.
_OF_TASKS = re.compile(r"(SLURM|SRUN|PMI|PMIX|PALS|OMPI)_")
_KEPT = frozenset({"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_TMPDIR"})


def slurm_node_index(environ: Mapping[str, str]) -> NodeIndex:
    """Return the number of this node in its job step, and the number of nodes.

    Raises
    ------
    InvalidRequest
        This process is not a task of a job step.
    """
    try:
        nodes = environ.get("SLURM_STEP_NUM_NODES") or environ["SLURM_NNODES"]
        return NodeIndex(int(environ["SLURM_NODEID"]), int(nodes))
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f"this launcher is no task of a Slurm job step ({error}): start it with srun") from None


def node_name(environ: Mapping[str, str]) -> str:
    """Return the name by which Slurm knows this node, else its host name."""
    return environ.get("SLURMD_NODENAME") or platform.node() or "localhost"


def share(environ: Mapping[str, str], index: NodeIndex) -> Node:
    """Return this node with the slots that the engine has granted to the gang: devices, or shares of the CPU.

    Examples
    --------
    >>> share({"DAYLIGHT_SLOTS_OF_NODES": "4(x2),3", "SLURMD_NODENAME": "n3"}, NodeIndex(2, 3)).slots
    3
    """
    here = devices.local_node().model_copy(update={"name": node_name(environ)})
    if SHARES not in environ:
        return here
    # Devices of the node that the pool does not count as slots are no part of the gang.
    return here.model_copy(update={"slots": counts(environ[SHARES])[index.node], "kind": "cpu", "devices": ()})


def counts(text: str) -> list[int]:
    """Expand Slurm's short form of a number per node.

    Examples
    --------
    >>> counts("4(x2),3")
    [4, 4, 3]
    """
    found: list[int] = []
    for part in text.split(","):
        number, times = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip()).groups()  # type: ignore[union-attr]
        found += [int(number)] * int(times or 1)
    return found


def rank_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for ranks, without the engine's variables about its own tasks."""
    return {name: value for name, value in environ.items() if name in _KEPT or not _OF_TASKS.match(name)}
