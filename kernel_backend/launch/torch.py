"""Set the environment variables by which ranks of `torch.distributed` find each other."""

from __future__ import annotations

from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo


def env(assignment: RankAssignment, rendezvous: RendezvousInfo) -> dict[str, str]:
    """Return the variables that `init_process_group("gloo" | "nccl")` of `torch.distributed` reads.

    On several nodes, NCCL must use the network device by which the nodes have reached each other. On one machine it
    chooses the device itself.
    """
    device = {"GLOO_SOCKET_IFNAME": rendezvous.interface} if rendezvous.interface else {}
    if assignment.local_size < assignment.size:
        device |= {"NCCL_SOCKET_IFNAME": rendezvous.interface} if rendezvous.interface else {}
    return {
        "RANK": str(assignment.rank),
        "WORLD_SIZE": str(assignment.size),
        "LOCAL_RANK": str(assignment.local_rank),
        "LOCAL_WORLD_SIZE": str(assignment.local_size),
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.torch_port),
        **device,
    }
