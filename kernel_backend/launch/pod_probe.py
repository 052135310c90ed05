"""Run the probe program of a pool's check in a pod: `python -P -m kernel_backend.launch.pod_probe`.

It sends its answers to the service, whose request is in the environment variable DAYLIGHT_PROBE. If it can reach no
address of the service, its last line of output says so, and it exits with 1.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from kernel_backend.errors import DaylightError
from kernel_backend.launch.node import node_index
from kernel_backend.launch.probe import Order, probe, service_test
from kernel_backend.launch.service_address import client_of
from kernel_backend.model.launch.probe import ProbeCredentials, ProbeOrders, ProbeReport

VARIABLE = "DAYLIGHT_PROBE"
CUT_OFF = "cannot reach the service"  # begin of the last line of a probe that reaches no address of it
REACH_S = 30.0  # for which the service is tried, as the network of a new pod may take some seconds
RETRY_S = 1.0
POLL_S = 20.0  # longest time for which the service holds back its answer
_OVER = (401, 404)  # statuses of the service's answer once the check has ended


class ServiceChannel:
    """Channel by which a probe program sends its answers to the service and gets orders.

    Each call sends all answers so far, so that it may be repeated.
    """

    def __init__(self, credentials: ProbeCredentials, node: int) -> None:
        request = credentials.request
        self._client = client_of(request.urls, credentials.token, credentials.uid)
        self._check, self._token, self._urls = request.nonce, credentials.token, request.urls
        self._node, self._answers = node, dict[str, Any]()
        self._received = ProbeOrders()

    def tell(self, **part: Any) -> None:
        """Add `part` to the answers, and send all answers so far.

        Raises SystemExit if the check has ended, or the service cannot be reached.
        """
        self._answers |= part
        self._call(0.0)

    def order(self, kind: type[Order]) -> Order:
        """Wait for an order of this kind and return it; raise SystemExit if the check has ended."""
        while True:
            for each in (self._received.peer, self._received.all_reduce):
                if isinstance(each, kind):
                    return each
            self._received = self._call(POLL_S)

    def _call(self, wait: float) -> ProbeOrders:
        report = ProbeReport(node=self._node, answers=self._answers, orders=self._received.count, wait=wait)
        begun = time.monotonic()
        while True:
            try:
                return self._client.probe_report(self._check, self._token, report)
            except DaylightError as error:
                if error.http_status in _OVER:
                    raise SystemExit(0) from None
                if time.monotonic() > begun + REACH_S:
                    tests = [service_test(url) for url in self._urls]
                    tried = "; ".join(f"{each.url}: {each.problem or error}" for each in tests)
                    raise SystemExit(f"{CUT_OFF} ({tried})") from None
                time.sleep(RETRY_S)


if __name__ == "__main__":
    given = ProbeCredentials.model_validate_json(os.environ.pop(VARIABLE))
    place = node_index("kubernetes", os.environ)
    probe(given.request, place, ServiceChannel(given, place.node))
    sys.stdout.flush()
    os._exit(0)  # do not wait for the threads of gloo and of the listener
