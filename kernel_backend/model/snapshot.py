"""Describe a snapshot: the contents of its archive besides the definition."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

from kernel_backend.model.record import Record

# Members of the archive.
DEFINITION, DESCRIPTION = "definition.py", "snapshot.json"
PROJECT = "project"  # folder of local modules and included files
CAPTURED = "captured"  # folder of values that travel with `--capture`
DATA = "data"  # folder of the file lists of what `--data` declares
EDITABLE = "editable"  # folder of the sources of editable distributions, by name
GIT_DIFF = "git.diff"


class Piece(Record):
    """Consecutive lines of `definition.py` from one cell (or file); all line numbers start at 1."""

    cell: int | None  # execution count; None for a file
    file: str | None = None
    line: int  # where the piece begins in definition.py
    count: int  # how many lines it has
    cell_line: int  # where it begins in its cell


class Origin(NamedTuple):
    """Location of a line of `definition.py` in the user's notebook or files."""

    cell: int | None
    file: str | None
    line: int


class Environment(Record):
    """Environment that the code ran with, recorded automatically."""

    python: str  # 3.11.7
    implementation: str  # CPython
    platform: str
    cpu: str
    cores: int
    distributions: dict[str, str]  # name -> version
    urls: dict[str, str] = {}  # name -> where it came from, if not from an index: file, git+https with its commit
    editable: dict[str, str] = {}  # name -> digest of its source files
    daylight: str | None = None  # digest of Daylight's own files, as a worker needs them: names our wheel
    conda: dict[str, str] = {}  # name -> "version=build sha256:..."
    horovod: dict[str, str] = {}  # its build flags
    driver: str | None = None  # NVIDIA's
    variables: dict[str, str] = {}  # those that change numerics: OMP MKL ONEDNN ATEN CUBLAS NCCL
    git_commit: str | None = None
    git_dirty: bool | None = None

    @property
    def id(self) -> str:
        """Return a digest of a lock's inputs: Python, kind of system, all distributions and Daylight's own files."""
        system, *_ = parts = self.platform.split("-")  # Linux-6.1.0-x86_64-with-glibc2.36: not the kernel's release
        tables = [sorted(each.items()) for each in (self.distributions, self.origins, self.editable, self.conda)]
        facts = (self.python, self.implementation, system, parts[-3:], *tables, self.daylight)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def origins(self) -> dict[str, str]:
        """Return the origin of each distribution in `urls`: the digest of its file if known, else its URL."""
        return {name: url.partition("#sha256=")[2] or url for name, url in self.urls.items()}


class Project(Record):
    """Layout of a snapshot's folder `project`, which has local modules and included files by paths below the root."""

    root: str  # where that was: the nearest folder with .git or pyproject.toml, else the notebook's
    cwd: str  # the notebook's folder, relative to the root
    paths: tuple[str, ...]  # folders that lead the module path, relative to the root


class Captured(Record):
    """A notebook value captured by `--capture`, in a file of its own."""

    name: str
    file: str  # in the archive: captured/files.npy
    format: Literal["npy", "safetensors", "parquet", "json", "pickle"]
    bytes: int
    digest: str  # xxh3-128 of the file
    line: int  # of definition.py, which loads it


class State(Record):
    """Digest of a notebook value that the cell uses; the job compares its own value before the first step."""

    digest: str  # xxh3-128 of kind and content
    shown: str  # as a person reads it, shortened


class Process(Record):
    """Settings of the notebook's process and its libraries, which the job compares before the first step."""

    settings: dict[str, str] = {}  # by name; in a snapshot those that are not as they begin
    variables: dict[str, str | None] = {}  # of the environment, those that cells have set and the code names
    replaced: dict[str, str] = {}  # functions of libraries, by what stands in their place
    random: dict[str, str] = {}  # by package: digest of the state that the submitted cell itself draws from


class Data(Record):
    """Data declared with `--data`: a folder, a file or an object store's prefix, as it was at submit."""

    name: str  # as it was written
    path: str  # absolute, or a URL
    files: int
    bytes: int
    digest: str  # of the sorted list of names, sizes and digests
    listed: str  # member of the archive with that list, a tab-separated line a file: name, size, digest


class Snapshot(Record):
    """Description `snapshot.json` of a snapshot.

    With `definition.py` it makes the archive, whose sha256 is the snapshot's id.
    """

    version: str  # Daylight's
    numerics: int  # kernel_backend.NUMERICS
    pieces: tuple[Piece, ...]
    roles_from: int  # the line of definition.py where the submitted cell begins: above it are helpers
    contract: int = 1  # by which the definition is read: kernel_backend.definition.contract.CONTRACT when it was made
    environment: Environment
    warnings: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()  # of %pip, as name==version
    project: Project | None = None
    captured: tuple[Captured, ...] = ()
    state: dict[str, State] = {}
    process: Process | None = None  # the notebook's; None where nothing is compared
    data: tuple[Data, ...] = ()
    commits: tuple[str, ...] = ()  # external versions of data, as the person named them: lakefs://repo@c0ffee

    def locate(self, line: int) -> Origin | None:
        """Return the origin of line `line` of definition.py; None for a generated line."""
        for piece in self.pieces:
            if piece.line <= line < piece.line + piece.count:
                return Origin(piece.cell, piece.file, piece.cell_line + line - piece.line)
        return None
