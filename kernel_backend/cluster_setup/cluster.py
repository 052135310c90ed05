"""Describe a Slurm cluster: its head, its nodes, and the texts of Slurm's configuration files.

The head is the machine that runs Slurm's controller, slurmctld.
"""

from __future__ import annotations

from kernel_backend.cluster_setup.machine import Hardware
from kernel_backend.model.record import Record

CONTROLLER_PORT, NODE_PORT = 6817, 6818  # Slurm's own defaults
PARTITION = "main"
SPOOL, STATE, LOGS = "/var/lib/slurm/slurmd", "/var/lib/slurm/slurmctld", "/var/log/slurm"
MARK = "# Written by daylight cluster"  # first line of each file that Daylight writes
# Share of the memory to announce: the kernel reports a few MiB less after some boots, and Slurm drains a node with less
# memory than slurm.conf says.
_MEMORY_SHARE = 0.97


class ClusterNode(Record):
    """Machine of a cluster, with what slurm.conf says about it."""

    name: str
    address: str
    hardware: Hardware


class Cluster(Record):
    """Description of a whole cluster, which is stored on its head (the machine that runs Slurm's controller)."""

    name: str
    head: str
    nodes: tuple[ClusterNode, ...]  # all nodes, including the head
    cgroups: bool = False

    @property
    def address(self) -> str:
        """Return the network address of the head."""
        return next(node.address for node in self.nodes if node.name == self.head)

    def with_node(self, node: ClusterNode) -> Cluster:
        """Return a copy of the cluster with `node` added; it replaces a node of the same name."""
        others = [each for each in self.nodes if each.name != node.name]
        return self.model_copy(update={"nodes": tuple(sorted([*others, node], key=lambda each: each.name))})

    def without_node(self, name: str) -> Cluster:
        """Return a copy of the cluster without the node of this name."""
        return self.model_copy(update={"nodes": tuple(each for each in self.nodes if each.name != name)})


class Member(Record):
    """Record on a machine that has joined a cluster: names of the cluster and its head, and the head's address."""

    name: str  # name of the cluster
    head: str
    address: str  # address of the head


def slurm_conf(cluster: Cluster) -> str:
    """Return the text of slurm.conf; other machines read it from the head over the network (`enable_configless`)."""
    confined = cluster.cgroups
    nodes = "\n".join(_node_line(node) for node in cluster.nodes)
    return f"""{MARK}: its next command writes it anew.
ClusterName={cluster.name}
SlurmctldHost={cluster.head}({cluster.address})
SlurmctldPort={CONTROLLER_PORT}
SlurmdPort={NODE_PORT}
SlurmctldParameters=enable_configless
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={STATE}
SlurmdSpoolDir={SPOOL}
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={LOGS}/slurmctld.log
SlurmdLogFile={LOGS}/slurmd.log
ProctrackType=proctrack/{"cgroup" if confined else "linuxproc"}
TaskPlugin={"task/affinity,task/cgroup" if confined else "task/none"}
MpiDefault=none
PropagateResourceLimitsExcept=MEMLOCK
# A node that comes back, after a reboot or a loss of its network, is used again without a word of the admin.
ReturnToService=2
SlurmdTimeout=60
KillOnBadExit=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def gres_conf(cluster: Cluster) -> str:
    """Return the text of gres.conf, which names the device file of each GPU.

    Slurm could detect GPUs itself, but few packages of Slurm are built for that.
    """
    lines = [MARK]
    for node in cluster.nodes:
        first = 0
        for kind, count in node.hardware.gpus.items():
            files = f"/dev/nvidia[{first}-{first + count - 1}]" if count > 1 else f"/dev/nvidia{first}"
            lines.append(f"NodeName={node.name} Name=gpu Type={kind} File={files}")
            first += count
    return "\n".join(lines) + "\n"


def cgroup_conf(cluster: Cluster) -> str:
    """Return the text of cgroup.conf.

    If the cluster does not confine jobs by cgroups, its settings let slurmd start on machines without cgroups.
    """
    if not cluster.cgroups:
        return f"{MARK}\nCgroupPlugin=cgroup/v1\n"
    constrained = "ConstrainCores=yes\nConstrainDevices=yes\nConstrainRAMSpace=yes\n"
    return f"{MARK}\nCgroupPlugin=cgroup/v2\n{constrained}"


def _node_line(node: ClusterNode) -> str:
    hardware = node.hardware
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in hardware.gpus.items())
    memory = int(hardware.memory_mib * _MEMORY_SHARE)
    words = [f"NodeName={node.name}", f"NodeAddr={node.address}", f"CPUs={hardware.cpus}", f"RealMemory={memory}"]
    return " ".join([*words, *([f"Gres={gres}"] if gres else []), "State=UNKNOWN"])
