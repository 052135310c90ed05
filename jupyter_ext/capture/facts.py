"""Facts about a top-level statement: what it binds, reads, and may change in place."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Change:
    """Something that may have been changed in place, and how: by storing, by a method, or as an argument."""

    name: str
    how: str  # "store", "method" or "argument"
    path: tuple[str, ...] = ()  # attributes after the name: `os.environ["A"] = ...` has ("environ",)
    function: str | None = None  # of an argument: the root name of what was called
    looked: bool = False  # by the cell's last expression, whose value may have been all that was wanted


@dataclass
class Effects:
    """What calling a function may change: globals, its own arguments; and what else it calls."""

    changes: set[str] = field(default_factory=set)
    arguments: bool = False
    calls: set[str] = field(default_factory=set)


@dataclass
class Statement:
    """One top-level statement (several, where they share a line) with its facts; lines count from 1 in its cell."""

    start: int
    end: int
    nodes: list[ast.stmt]
    binds: dict[str, bool] = field(default_factory=dict)  # name -> only perhaps (in a branch)
    now: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    annotations: set[str] = field(default_factory=set)  # read now, if annotations are evaluated at all
    changes: list[Change] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)
    aliases: list[tuple[str, str]] = field(default_factory=list)
    imports: dict[str, str] = field(default_factory=dict)  # bound name -> package
    dotted: set[str] = field(default_factory=set)  # roots of `import a.b`
    star: bool = False
    effects: dict[str, Effects] = field(default_factory=dict)  # of the functions and classes made here
    magics: set[str] = field(default_factory=set)  # names that `name = !ls` and its like make, anywhere inside
