"""Deliver records and measurements of a node's ranks to the service, and pass its instructions on to the ranks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.measuring import Measuring
from kernel_backend.launch.service_address import connection
from kernel_backend.launch.times import PERIOD_S
from kernel_backend.launch.trace import TraceRelay
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.progress import Phase
from kernel_backend.model.reports import Delivery, Instruction, SpoolRecord

if TYPE_CHECKING:
    from kernel_backend.client import Client

_log = logging.getLogger(__name__)


class Deliveries:
    """Sender of one launcher's deliveries to the service: records of rank 0, notes, and the measurements that are due.

    Use it from one thread only.
    """

    def __init__(
        self, folder: AttemptFolder, job: LaunchSpec, instruct: Callable[[str], None], measuring: Measuring
    ) -> None:
        """Set up the deliveries for the attempt in `folder`.

        `instruct` is called with each instruction for the ranks of this node, and `measuring` has the measurements to
        send.
        """
        self._folder, self.job, self.instruct, self._measuring = folder, job, instruct, measuring
        self._traces = TraceRelay(instruct)

    def send(
        self,
        records: Sequence[SpoolRecord] = (),
        notes: Sequence[str] = (),
        phase: Phase | None = None,
        phase_seconds: float = 0.0,
        phase_text: str = "",
    ) -> Instruction:
        """Send records, notes to the user, the phase of rank 0, and due measurements; return the service's answer.

        If the answer requests a trace, the request is passed on to the ranks. Raises any error of the client; the same
        data can then be sent again.
        """
        client, token = self._connected
        due = self._measuring.due()
        delivery = Delivery(
            records=tuple(records),
            notes=tuple(notes),
            times=due.times,
            use=due.use,
            phase=phase,
            phase_seconds=phase_seconds,
            phase_text=phase_text,
        )
        answer = client.deliver(self.job.id, token, delivery)
        self._measuring.delivered(due)
        self._traces.take(answer)
        return answer

    @cached_property
    def _connected(self) -> tuple[Client, str]:
        token = self._folder.token()
        return connection(self.job, token), token


class MeasurementsUploader(threading.Thread):
    """Thread that delivers the measurements of a node other than node 0, where `SpoolUploader` does it."""

    def __init__(self, deliveries: Deliveries) -> None:
        super().__init__(name="measurements uploader", daemon=True)
        self._deliveries = deliveries
        self._over = threading.Event()

    def finish(self) -> None:
        """End the thread without a last delivery.

        The service reads the final measurements from the attempt's folder.
        """
        self._over.set()

    def run(self) -> None:
        """Deliver the newest measurements from time to time until `finish` is called; errors are logged and ignored."""
        while not self._over.wait(PERIOD_S):
            try:
                self._deliveries.send()
            except Exception as error:  # an error of this thread must not end the ranks
                _log.info("the service does not take times now: %s", error)
