"""Whether data that was declared is still what it was at submit: looked at beside the training, and only told."""

from __future__ import annotations

import threading
from pathlib import Path

from kernel_backend.data import changed_since
from kernel_backend.model.job import Job
from kernel_backend.model.reports import Note
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.runner.link import Spool

LAST_WORDS_S = 30.0  # for a look that is not over when the training is


class Declared(threading.Thread):
    """Compares what a snapshot declares with what is there now, and says a note where it differs."""

    def __init__(self, job: Job, snapshot: Snapshot | None, spool: Spool) -> None:
        super().__init__(name="declared data", daemon=True)
        self._data = snapshot.data if snapshot else ()
        self._code, self._home, self._spool = Path(job.code), Path(job.home), spool

    def run(self) -> None:
        """Look at each, once."""
        for data in self._data:
            try:
                said = changed_since(data, (self._code / data.listed).read_bytes(), self._home)
            except Exception as error:  # what is only told must not end a training
                said = f"--data {data.name} could not be compared with what it was at submit: {error}"
            if said:
                self._spool.say(Note(level="warning", text=f"data has changed since it was submitted: {said}"))

    def close(self) -> None:
        """Let it come to its end, where that takes no longer than some seconds."""
        if self.is_alive():
            self.join(LAST_WORDS_S)
