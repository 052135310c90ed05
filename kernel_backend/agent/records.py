"""What agents answer with that nothing else knows."""

from __future__ import annotations

from kernel_backend.model.record import Record


class Greeting(Record):
    """Who an agent says that it is."""

    uid: int
    pid: int
    home: str  # of the user's area


class ListedCheckpoint(Record):
    """A committed checkpoint; `files` changes whenever a program touches one of its files."""

    manifest: str  # the text of its file
    pinned: bool
    files: str
