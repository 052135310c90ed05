"""All executed statements in order, indexed by what they bind and what they may change."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.interpreter import Interpreter
from jupyter_ext.capture.libraries import STORING
from jupyter_ext.capture.names import root
from jupyter_ext.capture.settings import SECRET


class History:
    """A time is an index of `executed`; `displayed` are those of statements whose value the notebook showed."""

    def __init__(self, executed: Sequence[Statement], displayed: Collection[int] = ()) -> None:
        self.executed = executed
        self.binders: dict[str, list[int]] = defaultdict(list)
        self.changers: dict[str, list[int]] = defaultdict(list)
        self.binds: list[dict[str, bool]] = []  # by time: name -> only perhaps
        self.read: list[set[str]] = []  # by time, through the functions that are called
        self.ambient: list[int] = []
        self.stars: list[int] = []
        interpreter = Interpreter()
        for time, statement in enumerate(executed):
            done = interpreter.run(statement, displayed=time in displayed, secret=sets_secret(statement))
            # Random numbers are drawn from a state that a seed has made and each draw changes.
            drawn = {state for state in done.drawn if state in self.binders}
            binds = {**dict.fromkeys(done.bound, True), **statement.binds, **dict.fromkeys(done.seeded, False)}
            self.binds.append(binds)
            self.read.append(done.read | drawn)
            for name in binds:
                self.binders[name].append(time)
            for name in done.changed | drawn:
                self.changers[name].append(time)
            if done.ambient:
                self.ambient.append(time)
            if statement.star:
                self.stars.append(time)


def sets_secret(statement: Statement) -> bool:
    """Whether `os.environ["API_KEY"] = ...` is in it: such values stay out of snapshots."""
    return any("environ" in path and SECRET.search(ast.unparse(node)) for node, path in _set(statement))


def _set(statement: Statement) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """What a statement stores, and calls of methods that store, with the names on the way."""
    for top in statement.nodes:
        if isinstance(top, ast.Import | ast.ImportFrom):
            continue
        for node in ast.walk(top):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                name, path = root(node)
                yield top, (name or "", *path)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STORING:
                name, path = root(node.func)
                yield top, (name or "", *path)
