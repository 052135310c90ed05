"""Upload rank 0's records to the service in batches, send heartbeats, and receive instructions in return."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from kernel_backend.errors import DaylightError, Fenced
from kernel_backend.launch.deliveries import Deliveries
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.spool import SpoolReader, left_out_note, send_in_parts
from kernel_backend.model.launch.progress import BEGINNING
from kernel_backend.model.reports import SpoolRecord

PERIOD_S = 0.1  # between reads of the spool
HEARTBEAT_S = 2.0  # longest time between posts
ASKING_S = 0.2  # the same while ranks wait at a target for instructions, as their slots are idle
REFUSED_S = 1.0  # before a retry after the service has refused records
LAST_WORDS_S = 5.0  # time for the last posts after the ranks have ended
DELIVERY_S = 900.0  # the same where the service cannot read the spool later; a longer wait would only hold the node
REFUSALS = (400, 413)  # HTTP statuses of refusals that a retry would not change
TOLD_AGAIN = 10  # factor by which skipped records must grow for another note

_log = logging.getLogger(__name__)


class SpoolUploader(threading.Thread):
    """Thread that uploads the records of the spool, so that a slow service does not delay the detection of dead ranks.

    No record is lost while the service is down: requests are repeated, and after the attempt's end the service reads
    the rest from the spool. Instructions in the service's answers are passed on to the ranks: `release`, `stop`, or
    `until N` if the last step to train has changed.
    """

    def __init__(self, folder: AttemptFolder, deliveries: Deliveries) -> None:
        super().__init__(name="spool uploader", daemon=True)
        self._reader = SpoolReader(folder.spool)
        self._folder, self._deliveries = folder, deliveries
        self._attempt = deliveries.job.attempt
        self._last_words = DELIVERY_S if deliveries.job.staged else LAST_WORDS_S
        self._ending = threading.Event()
        self._until: int | None = None  # last target sent to the ranks
        self._left_out, self._told = 0, 0  # number of skipped lines now, and at the last note
        self._note = ""  # note to deliver to the user
        self._phase, self._since = BEGINNING.phase, time.monotonic()  # of rank 0, and when it began

    def finish(self) -> None:
        """Upload the remaining records for a few seconds at most, and end the thread; called when the ranks have ended.

        If the service cannot read the spool file afterwards, the limit is `DELIVERY_S` seconds instead.
        """
        self._ending.set()
        self.join(self._last_words + 1)

    def run(self) -> None:
        """Upload records until `finish` is called and no records are left, or its time limit is over."""
        waiting: Sequence[SpoolRecord] = ()
        spoken, deadline = 0.0, float("inf")
        while True:
            ending = self._ending.is_set()  # checked before reading: the spool then has the ranks' last records
            if ending and deadline == float("inf"):
                deadline = time.monotonic() + self._last_words
            waiting = waiting or self._read()  # records that cannot be posted now stay in the spool
            now = time.monotonic()
            if (ending and not waiting) or now > deadline:
                return
            pause = self._pause()
            if waiting or now - spoken >= pause:
                if self._post(waiting):
                    waiting, spoken = (), now
                elif ending:
                    time.sleep(PERIOD_S)
                else:
                    self._ending.wait(REFUSED_S)
            self._ending.wait(PERIOD_S)

    def _pause(self) -> float:
        tick = self._folder.tick(0)
        if tick is not None and tick.phase != self._phase:
            self._phase, self._since = tick.phase, time.monotonic()
        return ASKING_S if self._phase == "waiting" else HEARTBEAT_S

    def _read(self) -> Sequence[SpoolRecord]:
        try:
            page = self._reader.read()
        except OSError as error:
            _log.warning("the spool cannot be read now: %s", error)
            return ()
        if page.skipped:
            self._leave_out(page.skipped, page.problem)
        return page.records

    def _post(self, records: Sequence[SpoolRecord]) -> bool:
        """Upload records; return True if the service has stored or finally refused them, False to try again later."""
        try:
            try:
                self._send(records)
            except _Refused:
                self._send(())  # if an empty delivery is refused as well, the records are not the reason
                for each in send_in_parts(records, self._send, (_Refused,)):
                    self._leave_out(1, str(each))
            if self._note:
                self._tell()
        except Fenced:
            self._deliveries.instruct("stop")
        except Exception as error:  # any error: without this thread the ranks would get no more instructions
            expected = isinstance(error, DaylightError | _Refused)
            _log.info("the service does not take records now: %s", error, exc_info=None if expected else error)
            return False
        return True

    def _send(self, records: Sequence[SpoolRecord] = (), notes: Sequence[str] = ()) -> None:
        """Send records and notes to the service, and pass its instruction on to the ranks.

        Raises _Refused if the service refuses them for good.
        """
        try:
            since, text = time.monotonic() - self._since, self._folder.detail(0)
            answer = self._deliveries.send(records, notes, self._phase, since, text)
        except DaylightError as error:
            if error.http_status in REFUSALS:
                raise _Refused(str(error)) from error
            raise
        if answer.instruct != "continue":
            self._deliveries.instruct(answer.instruct)
        elif answer.until is not None and answer.until != self._until:
            self._until = answer.until
            self._deliveries.instruct(f"until {answer.until}")

    def _leave_out(self, count: int, problem: str) -> None:
        """Count spool lines or records that were skipped or refused, and prepare a note about them to the user.

        There is a note for the first one, and another whenever their number has grown tenfold. `problem` says what is
        wrong with one of them.
        """
        self._left_out += count
        if self._left_out >= TOLD_AGAIN * self._told:
            self._told, self._note = self._left_out, left_out_note(self._attempt, self._left_out, problem)[:2000]
            _log.warning("%s", self._note)

    def _tell(self) -> None:
        try:
            self._send(notes=(self._note,))
        except _Refused as error:  # an older service may refuse notes; the log has this one
            _log.warning("the service takes no notes: %s", error)
        self._note = ""


class _Refused(Exception):
    """Error: the service refuses records or notes, and would refuse them again."""
