"""A snapshot's own description: what is in the archive besides the definition itself."""

from __future__ import annotations

from typing import NamedTuple

from kernel_backend.model.record import Record


class Piece(Record):
    """Consecutive lines of `definition.py` that came from one cell (or file); all lines count from 1."""

    cell: int | None  # execution count; None for a file
    file: str | None = None
    line: int  # where the piece begins in definition.py
    count: int  # how many lines it has
    cell_line: int  # where it begins in its cell


class Origin(NamedTuple):
    """A line as the person knows it: of a cell, or of a file."""

    cell: int | None
    file: str | None
    line: int


class Environment(Record):
    """What the code ran with, recorded without being asked."""

    python: str  # 3.11.7
    implementation: str  # CPython
    platform: str
    cpu: str
    cores: int
    distributions: dict[str, str]  # name -> version
    variables: dict[str, str] = {}  # those that change numerics: OMP MKL ONEDNN ATEN CUBLAS NCCL
    git_commit: str | None = None
    git_dirty: bool | None = None


class Snapshot(Record):
    """`snapshot.json`: with `definition.py` it makes the archive, whose sha256 is the snapshot's id."""

    version: str  # Daylight's
    numerics: int  # kernel_backend.NUMERICS
    pieces: tuple[Piece, ...]
    roles_from: int  # the line of definition.py where the submitted cell begins: above it are helpers
    environment: Environment
    warnings: tuple[str, ...] = ()

    def locate(self, line: int) -> Origin | None:
        """Where line `line` of definition.py came from; None for a line of ours."""
        for piece in self.pieces:
            if piece.line <= line < piece.line + piece.count:
                return Origin(piece.cell, piece.file, piece.cell_line + line - piece.line)
        return None
