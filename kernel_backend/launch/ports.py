"""Reserve the ports at which ranks will listen, before the ranks exist."""

from __future__ import annotations

import socket


def reserved_port(address: str) -> socket.socket:
    """Return an open socket that reserves a free port at `address`.

    It keeps other programs from taking the port until rank 0 has imported its modules and listens. Listeners with
    SO_REUSEADDR, such as torch's, can use the port in spite of it.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held


class Ports:
    """Ports that one launcher reserves for the ranks of the gang.

    The first node has one for torch and one for Horovod. Each node has one per rank if ranks run a user's command.
    """

    def __init__(self, address: str, first: bool, horovod: bool, ranks: int) -> None:
        """Reserve ports at `address` ("" for all addresses); `first` says whether this is the first node of the gang.

        `horovod` says whether to reserve a port for Horovod, and `ranks` how many ports for ranks.
        """
        self._held: list[socket.socket] = []
        self.torch = self._reserve(address) if first else 0
        self.horovod = self._reserve(address) if first and horovod else 0
        self.ranks = tuple(self._reserve(address) for _ in range(ranks))

    def close(self) -> None:
        """Free the reserved ports."""
        for each in self._held:
            each.close()

    def _reserve(self, address: str) -> int:
        self._held.append(reserved_port(address))
        return int(self._held[-1].getsockname()[1])
