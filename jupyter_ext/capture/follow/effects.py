"""Run the abstract interpreter: find the names that each statement may change, and the variables that it reads."""

from __future__ import annotations

import ast

from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow import calls, definitions, expressions, statements
from jupyter_ext.capture.follow.abstract_objects import holders_of, names_of
from jupyter_ext.capture.follow.abstract_state import AbstractState, StatementEffect

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
        state.visit_all(statement.nodes)
        state.left -= state.steps
        everything = holders_of(state.changed)
        state.out.changed |= names_of(everything)
        state.out.packages = {each.package for each in everything if each.package}
        state.forget()
        return state.out
