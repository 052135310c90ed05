"""Define the data types that occur only in answers of agents."""

from __future__ import annotations

from kernel_backend.model.record import Record


class Greeting(Record):
    """First answer of an agent: its uid, its process id, and the folder of the user's workspace."""

    uid: int
    pid: int
    home: str  # of the user's workspace


class ListedCheckpoint(Record):
    """Committed checkpoint, as an agent lists it: its manifest, and the fields of it that listings fill in.

    The fingerprint `files` changes if a program modifies one of the files.
    """

    manifest: str  # text of the manifest's file
    pinned: bool
    files: str
    judged: dict[str, float] = {}
    awaited: bool = False
