"""Define the description of a snapshot: the contents of its archive besides the training definition."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

from kernel_backend.model.record import Record

# Members of the archive.
DEFINITION, DESCRIPTION = "definition.py", "snapshot.json"
# Names of the definition as a module. The second is for projects with a module `definition` of their own.
MODULE, OTHER_MODULE = "definition", "daylight_definition"
PROJECT = "project"  # folder of local modules and included files
CAPTURED = "captured"  # folder of values captured by `--capture`
DATA = "data"  # folder of lists of the files declared by `--data`
EDITABLE = "editable"  # folder of the sources of editable distributions, by name
NODE_LINK = (
    "/tmp/daylight-input-"  # with a token: link on a node's own disk to the data at a path of the working folder
)
GIT_DIFF = "git.diff"


class Piece(Record):
    """Consecutive lines of a snapshot's `definition.py` (its training code) that come from one notebook cell or file.

    Line numbers start at 1.
    """

    cell: int | None  # execution count; None for a file
    file: str | None = None
    line: int  # first line in definition.py
    count: int  # number of lines
    cell_line: int  # first line in the cell or file


class Origin(NamedTuple):
    """Location, in the user's notebook or files, of a line of a snapshot's `definition.py` (its training code)."""

    cell: int | None
    file: str | None
    line: int


class Environment(Record):
    """Python environment from which the code was submitted, recorded automatically."""

    python: str  # 3.11.7
    implementation: str  # CPython
    platform: str
    cpu: str
    cores: int
    distributions: dict[str, str]  # name -> version
    urls: dict[str, str] = {}  # name -> origin if not an index: file, or git+https with its commit
    editable: dict[str, str] = {}  # name -> digest of its source files
    daylight: str | None = None  # digest of Daylight's own files, which identifies its wheel
    conda: dict[str, str] = {}  # name -> "version=build sha256:..."
    horovod: dict[str, str] = {}  # build flags of Horovod
    driver: str | None = None  # version of the NVIDIA driver
    variables: dict[str, str] = {}  # environment variables that affect numerics: OMP MKL ONEDNN ATEN CUBLAS NCCL
    git_commit: str | None = None
    git_dirty: bool | None = None

    @property
    def id(self) -> str:
        """Return a digest of the inputs of a lock file: Python, system, packages, and Daylight's own files."""
        system, *_ = parts = self.platform.split("-")  # Linux-6.1.0-x86_64-with-glibc2.36: without the kernel's release
        tables = [sorted(each.items()) for each in (self.distributions, self.origins, self.editable, self.conda)]
        facts = (self.python, self.implementation, system, parts[-3:], *tables, self.daylight)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def origins(self) -> dict[str, str]:
        """Return the origin of each package that was installed from a URL: its file's digest if known, else the URL."""
        return {name: url.partition("#sha256=")[2] or url for name, url in self.urls.items()}


class Project(Record):
    """Layout of the snapshot's folder `project`: local modules and included files, by paths below its root."""

    root: str  # original root: nearest folder with .git or pyproject.toml, else the notebook's folder
    cwd: str  # the notebook's folder, relative to the root
    paths: tuple[str, ...]  # first entries of sys.path, relative to the root


class Captured(Record):
    """Notebook variable whose value travels in a file: its own, or one (a graph) with the others that share objects."""

    name: str
    file: str  # path in the archive: captured/files.npy
    format: Literal["npy", "safetensors", "parquet", "json", "pickle", "graph"]
    bytes: int  # of the file
    digest: str  # xxh3-128 of the file
    line: int  # line of definition.py that loads it


class State(Record):
    """Digest of a notebook variable that the cell uses.

    Before the first step, a job compares it with the digest of the variable's value in the job.
    """

    digest: str  # xxh3-128 of kind and content
    shown: str  # shortened text for users


class Process(Record):
    """Settings of the notebook's process and its libraries.

    Before the first step, a job compares them with the settings of its own process.
    """

    settings: dict[str, str] = {}  # by name; a snapshot has only those that differ from the default
    variables: dict[str, str | None] = {}  # environment variables that cells have set and the code names
    replaced: dict[str, str] = {}  # library functions that were replaced -> name of the replacement
    random: dict[str, str] = {}  # package -> digest of the random state from which the submitted cell draws


class Data(Record):
    """State at submission of data that was declared with `--data`: a folder, a file or a prefix of an object store."""

    name: str  # as the user wrote it
    into: str = ""  # name, or path as ./images, by which the training finds a local folder; "": it is only recorded
    path: str  # absolute, or a URL
    files: int
    bytes: int
    digest: str  # of the sorted list of file names, sizes and digests
    listed: str  # archive member with that list, one tab-separated line per file: name, size, digest

    @property
    def mapped(self) -> str:
        """Return the path in the working folder at which a training finds the data, as `./images`; "" for none."""
        return self.into if self.into.startswith("./") else ""


class Snapshot(Record):
    """Description of a snapshot, the file `snapshot.json`.

    Together with `definition.py` and project files it forms the archive, whose sha256 is the snapshot's id.
    """

    version: str  # version of Daylight
    numerics: int  # kernel_backend.NUMERICS
    pieces: tuple[Piece, ...]
    roles_from: int  # first line of the submitted cell in definition.py; helpers come before it
    contract: int = 1  # version of the rules for definitions (`kernel_backend.definition.contract.CONTRACT`)
    form: str = ""  # training form of another package; empty: a built-in one, which its code shows
    environment: Environment
    warnings: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()  # from %pip, as name==version
    project: Project | None = None
    captured: tuple[Captured, ...] = ()
    state: dict[str, State] = {}
    process: Process | None = None  # of the notebook; None: nothing is compared
    data: tuple[Data, ...] = ()
    commits: tuple[str, ...] = ()  # external versions of data, as the user named them: lakefs://repo@c0ffee
    packages: tuple[str, ...] = ()  # installed packages that the cell imports, by the name of the import

    def locate(self, line: int) -> Origin | None:
        """Return the place in the notebook or in files from which a line of `definition.py` comes.

        None for a generated line.
        """
        for piece in self.pieces:
            if piece.line <= line < piece.line + piece.count:
                return Origin(piece.cell, piece.file, piece.cell_line + line - piece.line)
        return None
