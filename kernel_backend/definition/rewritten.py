"""Rewrite an assignment such as `optimizer = Adam(...)` as the function that Daylight expects, for error messages."""

from __future__ import annotations

import ast
import copy

_CALLED = {"loss": ("output", "target"), "collate": ("batch",)}


def as_function(role: str, value: str, hyperparameter: str = "") -> str:
    """Return source such as `def optimizer(params, lr=1e-3): return Adam(params, lr=lr)`.

    It is made from the expression `value`, here `Adam(model.parameters(), lr=1e-3)`, for the function `role`, here
    `optimizer`. `hyperparameter`, here `lr`, is a keyword argument in it that becomes an argument of the function.
    """
    expression = ast.parse(value, mode="eval").body
    arguments: list[str] = []
    if role == "optimizer":
        expression, found = _with_params(expression)
        arguments.append("params" if found else "model")
    elif role == "schedule" and isinstance(expression, ast.Call) and expression.args:
        expression.args[0] = ast.Name("optimizer", ast.Load())
        arguments.append("optimizer")
    for keyword in keywords(expression):
        if hyperparameter and keyword.arg == hyperparameter:
            default = f"={ast.unparse(keyword.value)}" if isinstance(keyword.value, ast.Constant) else ""
            arguments.append(f"{hyperparameter}{default}")
            keyword.value = ast.Name(hyperparameter, ast.Load())
            break
    written = ast.unparse(expression)
    if role in _CALLED:
        written = f"{f'({written})' if isinstance(expression, ast.Lambda) else written}({', '.join(_CALLED[role])})"
        arguments = [*_CALLED[role], *arguments]
    return f"def {role}({', '.join(arguments)}):\n    return {written}"


def keywords(expression: ast.expr) -> list[ast.keyword]:
    """Return the keyword arguments of all calls in an expression."""
    return [each for each in ast.walk(expression) if isinstance(each, ast.keyword)]


def _with_params(expression: ast.expr) -> tuple[ast.expr, bool]:
    """Return an expression with `model.parameters()` replaced by `params`, and whether it was replaced."""

    class Params(ast.NodeTransformer):
        found = False

        def visit_Call(self, node: ast.Call) -> ast.AST:
            plain = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
            if plain and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
                self.found = True
                return ast.Name("params", ast.Load())
            return self.generic_visit(node)

    change = Params()
    changed = change.visit(copy.deepcopy(expression))
    assert isinstance(changed, ast.expr)
    return changed, change.found
