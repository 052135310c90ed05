"""Describe artifacts: files that a training stores for users, such as images, tables and the values of a cell."""

from __future__ import annotations

import mimetypes
import re
from pathlib import PurePath

from pydantic import FiniteFloat

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Record

NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9 ._-]{0,98}[A-Za-z0-9_.-])?"
FILE = r"[A-Za-z0-9_][A-Za-z0-9 ._-]{0,119}"
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # media types that cannot contain scripts
UNKNOWN = "application/octet-stream"
# The artifacts of a trial: the pickle of all values, and its index, which is written after it.
VALUES, INDEX = "values.pkl", "values.json"
LAST = "__dlrun_value__"  # the value of the last expression of a cell below %%dlrun
RANDOM = "__random__"  # the states of the random generators at the program's end
MOST_BYTES = 2**30  # limit for all values of a cell together
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,16}")
_TYPES = mimetypes.MimeTypes()  # Python's own table, without the machine's


class Artifact(Record):
    """Record of a file that a trial has stored under a name; a later artifact of the same name replaces it."""

    trial: int
    name: str
    attempt: int  # the attempt that stored it
    step: int  # training step at which it was stored
    at: FiniteFloat
    size: int  # bytes
    digest: str  # xxh3-128
    media: str  # media type by file name, such as image/png
    file: str  # file name for downloads: the name, with the stored file's suffix


class CellValues(Record):
    """Index of the values that a job has stored: their names, and why others could not be stored."""

    values: dict[str, str]  # name -> shortened text
    missing: dict[str, str] = {}  # name -> why it could not be stored
    unchanged: tuple[str, ...] = ()  # names of earlier cells' values that are as they were
    needs: tuple[str, ...] = ()  # the notebook's classes and functions without which the pickle cannot be read
    bytes: int  # of the pickle
    digest: str  # xxh3-128 of the pickle
    slots: int = 1  # of the job; the values are those of rank 0

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the variables, without the value of the last expression and the random states."""
        return tuple(name for name in self.values if name not in (LAST, RANDOM))


def check_name(name: str) -> str:
    """Return `name` unchanged if an artifact may have this name, which must be valid in file names and URLs.

    Raises InvalidRequest otherwise.
    """
    if not isinstance(name, str) or re.fullmatch(NAME, name) is None:
        raise InvalidRequest(
            f"{str(name)[:120]!r} is no name of an artifact: write up to 100 letters (a to z), digits, spaces "
            "and . _ -, beginning with a letter, a digit or _"
        )
    return name


def file_of(name: str, path: PurePath) -> str:
    """Return an artifact's file name for downloads: its name with the suffix of the saved file, such as `net.png`."""
    known = _SUFFIX.fullmatch(path.suffix) is None or name.lower().endswith(path.suffix.lower())
    return name if known else name + path.suffix


def media_of(file: str) -> str:
    """Return the media type that a file's name implies; `application/octet-stream` if it is compressed or unknown."""
    media, packed = _TYPES.guess_type(file, strict=False)
    return media if media and not packed else UNKNOWN
