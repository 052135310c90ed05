"""Locate the literal that holds a hyperparameter's value in a program, and replace it."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kernel_backend.definition.contract import Parameter
from kernel_backend.definition.merge import with_default
from kernel_backend.model.record import Value
from kernel_backend.model.values import as_value

Put: TypeAlias = Callable[[ast.expr], None]  # replaces a literal by another expression


@dataclass(frozen=True)
class Place:
    """Location in a program's syntax tree of the literal that is a hyperparameter's value."""

    name: str
    line: int
    put: Put
    default: Any
    annotation: str | None = None
    written: str = ""  # the name in the program: `lr`, `config.lr`, `--lr`
    required: bool = False  # the program has no value of its own

    @property
    def parameter(self) -> Parameter:
        """Return the hyperparameter, with its type and its default."""
        found = Parameter(
            name=self.name,
            kind="hyperparameter",
            required=self.required,
            annotation=self.annotation,
            line=self.line,
            is_tuple=isinstance(self.default, tuple),
        )
        return found if self.required else with_default(found, as_value(self.default))

    def write(self, value: Value) -> None:
        """Write a value into the program, unless it equals the value that the program has already."""
        own = self.parameter
        if self.required or type(value) is not type(own.default) or value != own.default:
            given = tuple(value) if own.is_tuple and isinstance(value, list) else value
            self.put(expression(given, self.line))

    @staticmethod
    def attribute(node: ast.AST, name: str) -> Put:
        """Return a function that sets the attribute `name` of a node to a new expression."""
        return lambda value: setattr(node, name, value)

    @staticmethod
    def item(nodes: list[ast.expr], number: int) -> Put:
        """Return a function that replaces the expression at index `number` in a list."""
        return lambda value: nodes.__setitem__(number, value)


def expression(value: Value | tuple[Value, ...], line: int) -> ast.expr:
    """Return the syntax node of a number, text, list or other literal value, with this line number.

    Examples
    --------
    >>> ast.unparse(expression((1, -0.5), line=3))
    '(1, -0.5)'
    >>> ast.unparse(expression(float("inf"), line=3))
    "float('inf')"
    """
    text = f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)
    found = ast.parse(text, mode="eval").body
    return ast.increment_lineno(found, line - 1)
