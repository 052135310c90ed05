"""Report to the service that a node is still fetching files, so that the attempt's other nodes keep waiting for it."""

from __future__ import annotations

import logging
import secrets
import threading
from types import TracebackType
from typing import Self

from kernel_backend.launch.service_address import client_of
from kernel_backend.model.launch.nodes import NodeIndex, NodeState
from kernel_backend.model.launch.staging import StagingRequest

PERIOD_S = 10.0
_log = logging.getLogger(__name__)


class Heartbeats(threading.Thread):
    """Thread that reports to the service, until the end of a `with` block, that a node is alive.

    The first report is sent after one period.
    """

    def __init__(self, request: StagingRequest, index: NodeIndex) -> None:
        super().__init__(name="heartbeats", daemon=True)
        self._request, self._node = request, index.node
        self._over = threading.Event()

    def __enter__(self) -> Self:
        """Start to report that the node is alive."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop reporting."""
        self._over.set()

    def run(self) -> None:
        """Report in each period until the block ends."""
        client = client_of(self._request.urls, self._request.token, self._request.uid)
        state = NodeState(node=self._node, process=secrets.token_hex(8))
        while not self._over.wait(PERIOD_S):
            try:
                client.node_state(self._request.key, self._request.token, state)
            except Exception as error:  # an error of a report must not stop the staging
                _log.info("the service cannot be told that this node gets ready: %s", error)
