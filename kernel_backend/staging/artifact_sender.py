"""Send artifacts of an attempt to the service, which cannot read the node's disk."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_backend.artifacts.outbox import Outbox, Waiting
from kernel_backend.errors import DaylightError, Fenced, PlaceUnavailable
from kernel_backend.model.launch.staging import PIECE, StagingRequest
from kernel_backend.model.reports import Delivery

if TYPE_CHECKING:
    from kernel_backend.client import Client

PERIOD_S = 0.25  # between scans of the folder
RETRY_S = 1.0  # before a retry after the service could not be reached
DAMAGED = 3  # uploads with a wrong digest after which an artifact is given up
_log = logging.getLogger(__name__)


class ArtifactSender(threading.Thread):
    """Thread that sends artifacts in pieces until the service has stored them; all requests can be repeated.

    Logs have a separate thread, so that a large artifact does not delay them.
    """

    def __init__(self, folder: Path, request: StagingRequest, client: Client) -> None:
        super().__init__(name="artifact sender", daemon=True)
        self._outbox, self._request, self._client = Outbox(folder), request, client
        self._ending = threading.Event()

    def finish(self, seconds: float) -> None:
        """Send the remaining artifacts after the ranks have ended, for up to this many seconds."""
        self._ending.set()
        self.join(seconds)
        if self.is_alive():
            _log.error("artifacts have not reached the service in %.0f s", seconds)

    def run(self) -> None:
        """Send new artifacts until `finish` is called and all are sent, or the service ends the attempt."""
        while True:
            ending = self._ending.is_set()  # checked before the scan, which is then complete
            try:
                for waiting in self._outbox.waiting():
                    self._settle(waiting)
            except Fenced as error:
                _log.warning("the service takes no artifacts any more: %s", error)
                return
            except Exception as error:  # any error: the ranks continue, and sending is tried again
                expected = isinstance(error, DaylightError)
                _log.info("artifacts cannot be sent now: %s", error, exc_info=None if expected else error)
                time.sleep(RETRY_S)
                continue
            if ending:
                return
            self._ending.wait(PERIOD_S)

    def _settle(self, waiting: Waiting) -> None:
        """Send one artifact and remove it from this node; if it cannot be read or stored, send a note to the user.

        Raises Fenced, and errors after which the artifact is sent again, such as an unreachable service.
        """
        try:
            self._send(waiting)
        except Fenced:
            raise
        except (DaylightError, OSError) as error:  # OSError: the user's file cannot be read
            passing = isinstance(error, DaylightError) and error.http_status >= 500
            if passing and not isinstance(error, PlaceUnavailable):
                raise
            about = waiting.record
            text = f"artifact {about.name} of step {about.step} was not kept: {error}"
            _log.warning("%s", text)
            self._client.deliver(self._request.key, self._request.token, Delivery(notes=(text[:2000],)))
        self._outbox.remove(waiting)

    def _send(self, waiting: Waiting) -> None:
        key, token = self._request.key, self._request.token
        for _ in range(DAMAGED):
            if (known := self._client.keep_artifact(key, token, waiting.record)).stored:
                return
            self._send_content(waiting, known.size)
        if not self._client.keep_artifact(key, token, waiting.record).stored:
            raise PlaceUnavailable(f"it arrived damaged {DAMAGED} times: look at this node's network")

    def _send_content(self, waiting: Waiting, offset: int) -> None:
        """Send an artifact's file from an offset to its end; the service answers each piece with the next offset."""
        with waiting.content.open("rb") as file:
            while offset < waiting.record.size:
                file.seek(offset)
                piece = file.read(PIECE)
                if not piece:
                    return
                offset = self._client.stage_artifact(
                    self._request.key, self._request.token, waiting.record.digest, offset, piece
                )
