"""While training runs, compare files declared with `--data` with their digests at submission; warn of changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.data import changed_since
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import Note
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.runner.ipc import Spool

LAST_WORDS_S = 30.0  # for a comparison that is running when the training ends


def changes(job: LaunchSpec, snapshot: Snapshot | None) -> Iterator[str]:
    """Yield a sentence for each declared folder, file or URL that changed since submission or cannot be compared."""
    for data in snapshot.data if snapshot else ():
        if data.into:  # its versions were compared when it was fetched
            continue
        try:
            place = job.config.data_at.get(data.name, data.path)
            listed = (Path(job.code) / data.listed).read_bytes()
            said = changed_since(data.model_copy(update={"path": place}), listed, Path(job.home))
        except Exception as error:  # an error of a mere report must not stop a training
            yield f"--data {data.name} could not be compared with what it was at submit: {error}"
        else:
            if said:
                yield f"data has changed since it was submitted: {said}"


class DeclaredDataCheck(threading.Thread):
    """Thread that compares a snapshot's declared data with the current files and warns the user of differences."""

    def __init__(self, job: LaunchSpec, snapshot: Snapshot | None, spool: Spool) -> None:
        super().__init__(name="declared data", daemon=True)
        self._job, self._snapshot, self._spool = job, snapshot, spool

    def run(self) -> None:
        """Compare all declared data once, and write a warning to the spool for each difference."""
        for said in changes(self._job, self._snapshot):
            self._spool.say(Note(level="warning", text=said))

    def close(self) -> None:
        """Wait some seconds for the thread to finish the comparison, then leave it unfinished."""
        if self.is_alive():
            self.join(LAST_WORDS_S)
