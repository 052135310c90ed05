"""Read from the engine's environment variables which node of its gang this is, and which slots it has there."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

from kernel_backend import devices
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.launch.nodes import NodeIndex
from kernel_backend.model.resources import Node

SHARES = "DAYLIGHT_SLOTS_OF_NODES"  # variable with the slots of each node, such as `4(x2),3`, if a slot is no device
STEPS = ("slurm", "kubernetes")  # engines that start a launcher on each node of a gang
NODE, NODES = "DAYLIGHT_NODE", "DAYLIGHT_NODES"  # variables of a pod: its number in the gang, and how many there are
NODE_NAME = "DAYLIGHT_NODE_NAME"  # variable of a pod: the name of its node
# Variables that would make frameworks take a rank for a task of the engine: Lightning, for example, would use Slurm's
# number of tasks, which counts launchers, as the world size.
_OF_TASKS = re.compile(r"(SLURM|SRUN|PMI|PMIX|PALS|OMPI)_")
_KEPT = frozenset({"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_TMPDIR"})


def node_index(step: str, environ: Mapping[str, str]) -> NodeIndex:
    """Return the number of this node in its gang, and how many nodes there are.

    `step` is the engine that has started this process: `slurm` or `kubernetes`.

    Raises
    ------
    InvalidRequest
        This process was not started by that engine.
    """
    return slurm_node_index(environ) if step == "slurm" else _pod_index(environ)


def slurm_node_index(environ: Mapping[str, str]) -> NodeIndex:
    """Return the number of this node in its Slurm job step, and how many nodes the step has.

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


def _pod_index(environ: Mapping[str, str]) -> NodeIndex:
    try:
        return NodeIndex(int(environ[NODE]), int(environ[NODES]))
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f"this launcher is in no pod of a gang ({error}): the service creates those") from None


def node_name(environ: Mapping[str, str]) -> str:
    """Return the name that the engine has for this node; if it has set none, the host name."""
    return environ.get("SLURMD_NODENAME") or environ.get(NODE_NAME) or platform.node() or "localhost"


def share(environ: Mapping[str, str], index: NodeIndex) -> Node:
    """Return this node, with the slots on it that the engine has granted to the gang: devices, or parts of the CPU.

    Examples
    --------
    >>> share({"DAYLIGHT_SLOTS_OF_NODES": "4(x2),3", "SLURMD_NODENAME": "n3"}, NodeIndex(2, 3)).slots
    3
    """
    here = devices.local_node().model_copy(update={"name": node_name(environ)})
    if SHARES not in environ:
        return here
    # If the pool counts CPU slots, devices of the node are no part of the gang.
    return here.model_copy(update={"slots": counts(environ[SHARES])[index.node], "kind": "cpu", "devices": ()})


def counts(text: str) -> list[int]:
    """Return the number of slots of each node, from text in which Slurm abbreviates repeated numbers.

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
    """Return the environment variables for ranks: the launcher's, without those that describe a task of the engine.

    With variables such as SLURM_NTASKS, frameworks would take a rank for a task that Slurm has started.
    """
    return {name: value for name, value in environ.items() if name in _KEPT or not _OF_TASKS.match(name)}
