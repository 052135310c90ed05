"""Define the record of one top-level statement: the names that its syntax binds and reads."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Statement:
    """Names that a top-level statement binds and reads; lines count from 1 in its cell, columns in characters from 0.

    If the statement shares a line with others, `after` is the column where it begins on its first line, and `before` is
    the column where it ends on its last line.
    """

    start: int
    end: int
    nodes: list[ast.stmt]
    after: int | None = None
    before: int | None = None
    binds: dict[str, bool] = field(default_factory=dict)  # name -> True if it is bound only in a branch
    now: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    annotations: set[str] = field(default_factory=set)  # read now, unless annotations are not evaluated
    imports: dict[str, str] = field(default_factory=dict)  # bound name -> package
    dotted: set[str] = field(default_factory=set)  # roots of `import a.b`
    packages: set[str] = field(default_factory=set)  # imported now, wherever in the statement
    packages_later: set[str] = field(default_factory=set)  # imported by function bodies
    star: bool = False
    magics: set[str] = field(default_factory=set)  # names bound by `name = !ls` and similar, anywhere inside
    failed: bool = False  # it raised, perhaps after some effects; the job catches the error and continues
    sets_secret: bool = False  # `os.environ["API_KEY"] = ...`: such values are not put into snapshots
    counts_subclasses: bool = False  # reads `__subclasses__`
