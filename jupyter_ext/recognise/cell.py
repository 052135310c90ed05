"""Rewrite statements of a notebook cell as functions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jupyter_ext.recognise.trees import called, names, root, without_devices

_PLATFORM = {"manual_seed", "seed", "print", "train", "eval", "to", "cuda", "summary", "zero_grad"}
_INDENT = "    "


def statement_text(statement: ast.stmt, source: str) -> str:
    """Return a statement's source, with its comments if it can be copied unchanged.

    It cannot if it is indented, shares a line with others, or moves data to a device, which is left out.
    """
    plain = without_devices(statement)
    decorators = getattr(statement, "decorator_list", [])
    lines = source.splitlines()[min(each.lineno for each in [statement, *decorators]) - 1 : statement.end_lineno]
    alone = statement.col_offset == 0 and ast.dump(plain) == ast.dump(statement) and _is_whole(lines)
    return "\n".join(lines) if alone else ast.unparse(plain)


def _is_whole(lines: Sequence[str]) -> bool:
    """Return True if the lines contain exactly one statement."""
    try:
        return len(ast.parse("\n".join(lines)).body) == 1
    except SyntaxError:
        return False


def about(name: str, setup: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements among `setup` that compute or mutate the value of `name`, from its last new value on.

    An assignment that does not read the old value makes the statements before it superfluous.
    """
    found: list[ast.stmt] = []
    for each in setup:
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if any(root(target) == name for target in targets):
                found = (
                    [each]
                    if any(_is(target, name) for target in targets) and not _reads(each, name)
                    else [*found, each]
                )
        elif _changes(each, name):
            found.append(each)
    return found


def _changes(statement: ast.stmt, name: str) -> bool:
    """Return True if a statement may mutate the value of `name`: a loop over it, or a call of its method."""
    if isinstance(statement, ast.For):
        return name in names(statement.iter)
    if isinstance(statement, ast.Expr) and called(statement.value).endswith("_"):  # nn.init.zeros_(net.fc.bias)
        return name in names(statement)
    return isinstance(statement, ast.Expr) and _receiver(statement) == name and called(statement.value) not in _PLATFORM


def _is(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _reads(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    """Return True if an assignment to `name` reads its old value, as `x = x + 1` does.

    Moving it to a device, as in `x = x.to(device)`, does not count.
    """
    value = without_devices(statement.value) if statement.value is not None else ast.Constant(None)
    return name in names(value)


def function(name: str, lines: Sequence[str]) -> str:
    """Return the source of a function without arguments that consists of these lines."""
    body = "\n".join(lines).replace("\n", f"\n{_INDENT}")
    return f"def {name}():\n{_INDENT}{body}"


def _receiver(statement: ast.Expr) -> str:
    call = statement.value
    return root(call.func.value) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
