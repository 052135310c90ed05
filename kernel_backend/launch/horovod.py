"""Let the ranks of an attempt find each other by Horovod: environment variables, and the rendezvous server."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence

from kernel_backend.launch.rendezvous import RankAssignment, RendezvousInfo


def installed() -> bool:
    """Return True if Horovod is installed for this interpreter, without importing it."""
    return importlib.util.find_spec("horovod") is not None


def env(assignment: RankAssignment, rendezvous: RendezvousInfo) -> dict[str, str]:
    """Return the environment variables that `horovod.torch.init()` reads; {} if there is no rendezvous server.

    Tensor fusion is switched off: the runner itself combines gradients into buckets. Horovod's fusion depends on
    timing, so that sums over four ranks would differ in their last bits from run to run.
    """
    if rendezvous.horovod_port is None:
        return {}
    return {
        "HOROVOD_HOSTNAME": assignment.node,
        "HOROVOD_RANK": str(assignment.rank),
        "HOROVOD_SIZE": str(assignment.size),
        "HOROVOD_LOCAL_RANK": str(assignment.local_rank),
        "HOROVOD_LOCAL_SIZE": str(assignment.local_size),
        "HOROVOD_CROSS_RANK": str(assignment.cross_rank),
        "HOROVOD_CROSS_SIZE": str(assignment.cross_size),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": rendezvous.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(rendezvous.horovod_port),
        "HOROVOD_FUSION_THRESHOLD": "0",
        **({"HOROVOD_GLOO_IFACE": rendezvous.interface} if rendezvous.interface else {}),
    }


class Rendezvous:
    """Rendezvous server of Horovod, at which ranks find each other; each attempt has one, in node 0's launcher.

    As it has no authentication, it listens only on `address`, and not on every interface as Horovod's own `start()`
    does.
    """

    def __init__(self, address: str, rank_assignments: Sequence[RankAssignment], port: int = 0) -> None:
        from horovod.runner.common.util.hosts import SlotInfo
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

        self._server = RendezvousHTTPServer((address, port), RendezvousHandler, 0)
        self._server.daemon_threads = True
        self._server.init(
            [
                SlotInfo(s.node, s.rank, s.local_rank, s.cross_rank, s.size, s.local_size, s.cross_size)
                for s in rank_assignments
            ]
        )
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="rendezvous", daemon=True).start()

    def close(self) -> None:
        """Stop the rendezvous server."""
        self._server.shutdown()
        self._server.server_close()
