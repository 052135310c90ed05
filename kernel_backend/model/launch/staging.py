"""Define how files of attempts are transferred between the service and nodes that cannot read its home directory."""

from __future__ import annotations

import re

from pydantic import Field

from kernel_backend.model.record import Record

VARIABLE = "DAYLIGHT_STAGING"  # environment variable of a job, with a StagingRequest
UNHEARD = "the service does not hear that"  # begin of a launcher's last line where it cannot reach the service
SCRATCH = "DAYLIGHT_SCRATCH"  # environment variable of a job, with the folder for its files on the node's own disk
PIECE = 2**20  # bytes of a file that are sent at once
LIMIT = 4 * 2**30  # bytes of an artifact, and of all logs of an attempt together, that the service takes
MOST_ARTIFACTS = 10_000  # of a trial
ARTIFACTS_LIMIT = 64 * 2**30  # bytes of all artifacts of a trial

_NODE = r"(?:-node-[0-9]{1,5})?"
_LOG = rf"(?:rank-[0-9]{{1,6}}|launcher{_NODE})\.log"
_END = rf"end{_NODE}\.json"
_RECORD = rf"(?:launcher|ranks|measured){_NODE}\.json|failure-[0-9]{{1,6}}\.json|{_END}"
FILE = rf"(?:{_LOG}|{_RECORD})"  # names of the files that the service takes into the folder of an attempt
DIGEST = r"[0-9a-f]{32}"  # of an artifact, by which its pieces are sent


class StagingRequest(Record):
    """Access of launchers to the service, with which they exchange files: the attempt, addresses and a secret.

    The secret authenticates the launchers. It is never put on a command line.
    """

    key: str  # of the attempt
    urls: tuple[str, ...]  # the service's addresses, the preferred first
    uid: int | None  # Unix user id of the service
    token: str


class StagedFile(Record):
    """Answer of the service to a launcher that sent a piece of a file: how many bytes of the file it has now."""

    size: int = Field(ge=0)


class StagedArtifact(StagedFile):
    """Answer of the service to a launcher that sent an artifact's record.

    It says how many bytes of the artifact's file have come, and whether the artifact is stored.
    """

    stored: bool = False


def is_log(name: str) -> bool:
    """Return whether a file only grows, so that it is sent in pieces; other files are sent whole."""
    return re.fullmatch(_LOG, name) is not None


def is_end(name: str) -> bool:
    """Return whether a file reports the end of a node's ranks, so that it must be sent after all others."""
    return re.fullmatch(_END, name) is not None


def is_staged(name: str) -> bool:
    """Return whether a file of an attempt's folder is one that launchers send to the service."""
    return re.fullmatch(FILE, name) is not None


def is_of_gang(name: str, slots: int) -> bool:
    """Return whether the numbers in a file's name are those of ranks and nodes of a gang with so many slots.

    Examples
    --------
    >>> [is_of_gang(name, 2) for name in ("rank-1.log", "end.json", "rank-2.log", "rank-01.log", "end-node-9.json")]
    [True, True, False, False, False]
    """
    return all(number == str(int(number)) and int(number) < slots for number in re.findall("[0-9]+", name))


def news(size: int, offset: int, data: bytes) -> bytes:
    """Return the bytes of `data` that a file of `size` bytes lacks, if `data` begins at byte `offset` of the file.

    Returns b"" if there is a gap between the file's end and `offset`.

    Examples
    --------
    >>> news(3, 0, b"abcd"), news(3, 3, b"d"), news(3, 4, b"e"), news(3, 0, b"ab")
    (b'd', b'd', b'', b'')
    """
    return data[size - offset :] if offset <= size else b""


def staging_problem(checkpoints: str) -> str:
    """Return why a training cannot run on nodes that cannot read the home directory; "" if it can.

    `checkpoints` is the folder or URL of all checkpoints.
    """
    if "://" not in checkpoints or checkpoints.startswith("file://"):
        return (
            "its nodes do not see the files of this service, and checkpoints lie in a folder of it. Keep them in an "
            'object store, c.Daylight.checkpoints = "s3://bucket/runs", or let the nodes see DAYLIGHT_HOME, and set '
            "`shared` of the pool to yes"
        )
    return ""
