"""Define the records that only agents send."""

from __future__ import annotations

from kernel_backend.model.record import Record


class Greeting(Record):
    """First answer of an agent: its uid, process id and home folder."""

    uid: int
    pid: int
    home: str  # of the user's workspace


class ListedCheckpoint(Record):
    """Committed checkpoint with a fingerprint of its files (`files`), which changes if a program modifies one."""

    manifest: str  # text of the manifest's file
    pinned: bool
    files: str
