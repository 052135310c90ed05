"""Run the abstract interpreter: find the names that each statement may change, and the variables that it reads."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterable, Iterator

from jupyter_ext.capture.facts import FunctionNode, Statement
from jupyter_ext.capture.follow import calls, definitions, expressions, statements
from jupyter_ext.capture.follow.abstract_objects import holders_of, names_of
from jupyter_ext.capture.follow.abstract_state import AbstractState, Spent, StatementEffect
from jupyter_ext.capture.follow.function_summary import summarise_statement

_DEFINITIONS = (ast.Import, ast.ImportFrom, FunctionNode, ast.ClassDef)
_VISITS = {**statements.VISITS, **definitions.VISITS, **expressions.VISITS, **calls.VISITS}


class Follower:
    """Interpreter that processes all executed statements in order."""

    def __init__(self, *, counts_subclasses: bool = False) -> None:
        """Create an interpreter with an empty abstract state.

        `counts_subclasses` means that some code reads `__subclasses__`, so that defining a class changes its bases.
        """
        self._state = AbstractState(_VISITS, counts_subclasses=counts_subclasses)

    def run(self, statement: Statement, *, displayed: bool) -> StatementEffect:
        """Return the possible effects of a statement; `displayed` means that the notebook showed its value."""
        state = self._state
        state.begin(statement)
        if displayed and isinstance(statement.nodes[-1], ast.Expr):
            state.shown = statement.nodes[-1].value
        try:
            state.visit_all(statement.nodes)
        except Spent:
            self._summarise(statement)
        state.left -= state.steps
        state.work_left -= state.work
        everything = holders_of(state.changed)
        state.out.changed |= names_of(everything)
        state.out.packages = {each.package for each in everything if each.package}
        state.forget()
        return state.out

    def know_data(self, names: Collection[str]) -> None:
        """Take the values of these names as data, unless another name may have the same value."""
        for name in names:
            for each in self._state.globals.get(name, ()):
                if each.opaque and each.package is None and not each.assumed and each.names <= {*names}:
                    each.data = True

    def _summarise(self, statement: Statement) -> None:
        """Assume the effects of a statement that is too intricate to be interpreted."""
        state = self._state
        state.restart()
        summarise_statement(state, statement)
        state.out.too_intricate = True
        for node in _definitions(statement.nodes):
            with contextlib.suppress(Spent):
                state.visit(node)


def _definitions(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the imports and definitions in these nodes, except those within functions and classes."""
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            yield node
        elif not isinstance(node, ast.Lambda):
            yield from _definitions(ast.iter_child_nodes(node))
