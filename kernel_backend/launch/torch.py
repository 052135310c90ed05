"""Set the variables by which `torch.distributed` ranks connect."""

from __future__ import annotations

from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo


def env(seat: RankAssignment, meeting: RendezvousInfo) -> dict[str, str]:
    """Return the variables that `init_process_group("gloo" | "nccl")` of `torch.distributed` reads."""
    return {
        "RANK": str(seat.rank),
        "WORLD_SIZE": str(seat.size),
        "LOCAL_RANK": str(seat.local_rank),
        "LOCAL_WORLD_SIZE": str(seat.local_size),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.torch_port),
        **({"GLOO_SOCKET_IFNAME": meeting.interface} if meeting.interface else {}),
    }
