"""Let the launchers of a gang's nodes find each other through the service, and report failed ranks to each other."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

from kernel_backend import __version__
from kernel_backend.errors import DaylightError
from kernel_backend.launch.gang import Peers, reserve
from kernel_backend.launch.ports import Ports
from kernel_backend.launch.rendezvous import interface_of
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.nodes import GangNode, JoinAnswer, NodeIndex, NodeOffer, NodeState, Reached
from kernel_backend.model.resources import Node
from kernel_backend.network import device_of, network_devices

if TYPE_CHECKING:
    from kernel_backend.client import Client

ASK_S = 0.2  # between repeated offers while other nodes are missing
RETRY_S = 1.0  # before a retry after the service could not be reached
UNHEARD_S = 300.0  # time for a first answer of the service; later the launcher exits, which frees its node
PROBE_S = 2.0  # timeout of a connection to an address of node 0
PROBES = 16  # addresses that are tried concurrently
LAST_WORDS_S = 5.0  # time for the last report, of how the ranks ended
POLL_S = 20.0  # longest time for which the service holds back an answer without news

_log = logging.getLogger(__name__)


class Left(Exception):
    """Error: the gang does not start, so that this launcher must exit without starting its ranks.

    `outcome` is that of the attempt.
    """

    def __init__(self, reason: str, outcome: Literal["failed", "lost", "released"]) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Joining:
    """Part of this launcher in forming the gang: it offers its node and reserved ports until all nodes have joined."""

    def __init__(
        self, job: LaunchSpec, index: NodeIndex, here: Node, client: Client, token: str, tell: Callable[[str], None]
    ) -> None:
        """Reserve the ports for the ranks of this node.

        `index` is the number of this node, `here` its name and slots. `tell` is called with each new reason why the
        ranks do not start yet.
        """
        self._job, self._index, self._here, self._client, self._token = job, index, here, client, token
        self._tell, self._told = tell, ""
        self.process = secrets.token_hex(8)
        self._why = ""  # why the service could not be reached
        self._ports: Ports = reserve(job, "", index.node, here.slots)
        self._probed = Probed(self.process) if index.node == 0 and index.nodes > 1 else None

    def join(self, asked: threading.Event) -> Peers:
        """Wait until the launchers of all nodes have joined and all can reach node 0; return the gang's nodes.

        Raises Left if the gang does not start: the event `asked` is set, which means that the gang is to exit, the
        service refuses it, or the service cannot be reached.
        """
        reached: tuple[Reached, ...] | None = None
        heard, begun = False, time.monotonic()
        while not asked.is_set():
            answer = self._ask(reached)
            if answer is None:
                self._say(f"{self._here.name} cannot reach the service: {self._why}")
                if not heard and time.monotonic() - begun > UNHEARD_S:
                    late = f"{self._here.name} has not reached the service for {UNHEARD_S:g} s"
                    raise Left(f"{late}: {self._why}", "failed")
                asked.wait(RETRY_S)
                continue
            heard = True
            if answer.action == "leave":
                raise Left(answer.reason, answer.outcome)
            if answer.action == "go":
                return self._peers(answer.nodes)
            self._say(answer.reason)
            if answer.probe and self._index.node:
                reached = reached_addresses(answer.probe, answer.port, answer.process)
            asked.wait(ASK_S)
        raise Left("it was asked to end before its ranks had started", "released")

    def _say(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._tell(reason)

    def close(self) -> None:
        """Free the reserved ports."""
        self._ports.close()
        if self._probed is not None:
            self._probed.close()

    def _ask(self, reached: tuple[Reached, ...] | None) -> JoinAnswer | None:
        offer = NodeOffer(
            node=self._index.node,
            nodes=self._index.nodes,
            process=self.process,
            name=self._here.name,
            addresses=network_devices(),
            torch_port=self._ports.torch,
            horovod_port=self._ports.horovod,
            probe_port=self._probed.port if self._probed is not None else 0,
            rank_ports=self._ports.ranks,
            kind=self._here.kind,
            slots=self._here.slots,
            devices=self._here.devices,
            version=__version__,
            clock=time.time(),
            reached=reached,
        )
        try:
            return self._client.join(self._job.id, self._token, offer)
        except DaylightError as error:
            if error.http_status in (400, 401, 404):  # another database, or a service without this route
                raise Left(f"the service refuses this launcher: {error}", "lost") from None
            _log.info("the service cannot be reached now: %s", error)
            self._why = str(error)
            return None

    def _peers(self, nodes: tuple[GangNode, ...]) -> Peers:
        own = nodes[self._index.node].address
        return Peers(nodes, self._index.node, interface_of(own) if len(nodes) == 1 else device_of(own))


class PeerWatch(threading.Thread):
    """Thread that reports the state of this node's ranks to the service, and learns when other nodes' ranks fail."""

    def __init__(
        self, joining: Joining, job: LaunchSpec, index: NodeIndex, connect: Callable[[], Client], token: str
    ) -> None:
        super().__init__(name="peer watch", daemon=True)
        self._key, self._index, self._token, self._process = job.id, index, token, joining.process
        self._connect = connect
        self._over = threading.Event()
        self._told = ""
        self._telling: list[threading.Thread] = []
        self.broken = ""  # why the ranks of this node must be ended; "" if they need not
        self.fenced = ""  # why the service no longer accepts this attempt; "" while it does

    def tell(self, broken: str, *, ended: bool = False) -> None:
        """Report to the service that this node's ranks cannot continue or have ended; return without waiting.

        `broken` says why they cannot continue, "" if they can; with `ended`, all of them have ended.
        """
        if broken != self._told or ended:
            self._told = broken
            state = NodeState(node=self._index.node, process=self._process, broken=broken[:500], ended=ended)
            self._telling.append(threading.Thread(target=self._post, args=(self._connect(), state), daemon=True))
            self._telling[-1].start()

    def finish(self) -> None:
        """End the thread after the last report has reached the service, or after a few seconds."""
        self._over.set()
        deadline = time.monotonic() + LAST_WORDS_S
        for each in self._telling:
            each.join(max(0.0, deadline - time.monotonic()))

    def run(self) -> None:
        """Report the state of this node's ranks, and wait for news of other nodes, until `finish` is called.

        While the service cannot be reached, the ranks continue.
        """
        client = self._connect()
        while not self._over.is_set():
            state = NodeState(node=self._index.node, process=self._process, broken=self._told[:500], wait=POLL_S)
            if not self._post(client, state) or self.broken or self.fenced:
                self._over.wait(RETRY_S)  # without this pause, repeated answers with old news would come at once

    def _post(self, client: Client, state: NodeState) -> bool:
        try:
            order = client.node_state(self._key, self._token, state)
        except Exception as error:  # an error of this thread must not end the ranks
            _log.info("no news of the other nodes: %s", error)
            return False
        if order.action == "end":
            self.broken = order.reason or "another node's ranks have ended"
        elif order.action == "leave":
            self.fenced = order.reason or "the attempt has ended"
        return True


class Probed(threading.Thread):
    """Thread on node 0 that answers each TCP connection with the id of node 0's launcher.

    By this id, other nodes verify that an address is really that of node 0.
    """

    def __init__(self, answer: str) -> None:
        super().__init__(name="probed", daemon=True)
        self._answer = answer.encode() + b"\n"
        self._listener = socket.create_server(("", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.start()

    def run(self) -> None:
        """Answer connections until `close` is called."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with contextlib.suppress(OSError), connection:
                    connection.sendall(self._answer)

    def close(self) -> None:
        """Close the socket, which ends the thread."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def reached_addresses(addresses: Sequence[str], port: int, expected: str) -> tuple[Reached, ...]:
    """Return those of node 0's addresses that this node can connect to.

    An address counts only if the answer at `port` is the id `expected`. Each is returned together with the address that
    this node has in the connection.
    """
    with ThreadPoolExecutor(PROBES) as threads:  # an address that drops packets takes the whole timeout
        found = threads.map(lambda address: _reach(address, port, expected), addresses)
        return tuple(each for each in found if each is not None)


def _reach(address: str, port: int, expected: str) -> Reached | None:
    with contextlib.suppress(OSError), socket.create_connection((address, port), PROBE_S) as connection:
        connection.settimeout(PROBE_S)
        if connection.makefile("rb").readline().decode(errors="replace").strip() == expected:
            return Reached(address, connection.getsockname()[0])
    return None
