"""Hold where a program writes the value of a hyperparameter, and write another one there."""

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

Put: TypeAlias = Callable[[ast.expr], None]  # writes another expression in place of a literal


@dataclass(frozen=True)
class Place:
    """Literal of a program that is the value of a hyperparameter."""

    name: str
    line: int
    put: Put
    default: Any
    annotation: str | None = None
    written: str = ""  # as the program says it: `lr`, `config.lr`, `--lr`
    required: bool = False  # the program itself has no value

    @property
    def parameter(self) -> Parameter:
        """Return the hyperparameter with its type and default."""
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
        """Write a value into the program, unless it is the program's own."""
        own = self.parameter
        if self.required or type(value) is not type(own.default) or value != own.default:
            given = tuple(value) if own.is_tuple and isinstance(value, list) else value
            self.put(expression(given, self.line))

    @staticmethod
    def attribute(node: ast.AST, name: str) -> Put:
        """Return the writer of an attribute of a node."""
        return lambda value: setattr(node, name, value)

    @staticmethod
    def item(nodes: list[ast.expr], number: int) -> Put:
        """Return the writer of one of several expressions."""
        return lambda value: nodes.__setitem__(number, value)


def expression(value: Value | tuple[Value, ...], line: int) -> ast.expr:
    """Return the expression of a plain value at a line.

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
