"""Find code by which a program connects its ranks itself, as Daylight then changes neither its calls nor its files."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

WIRING = {
    "init_process_group", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "DistributedOptimizer",
    "DistributedGradientTape", "Accelerator", "Fabric", "deepspeed", "horovod",
}  # fmt: skip
_PLACED = (ast.Name, ast.Attribute, ast.alias, ast.ImportFrom)


def wired(trees: Mapping[str, ast.Module]) -> str | None:
    """Return the location of the first code that connects ranks to each other; None if there is none.

    `trees` has the syntax trees of the program, under the name "", and of its project's modules.

    Examples
    --------
    >>> wired({"": ast.parse("import torch.distributed as dist; dist.init_process_group('gloo')")})
    'line 1'
    >>> wired({"": ast.parse("import net"), "net": ast.parse("from accelerate import Accelerator")})
    'line 1 of net'
    >>> wired({"": ast.parse("rank = 8; model = lora(model, rank)")})
    """
    return first_line(trees, lambda node: isinstance(node, _PLACED) and bool(_names(node) & WIRING))


def first_line(trees: Mapping[str, ast.Module], is_found: Callable[[ast.AST], bool]) -> str | None:
    """Return `line 3`, or `line 3 of net`, for the first node for which `is_found` is true; None if there is none.

    `trees` has the syntax trees of modules by name; "" is the program itself.
    """
    for module, tree in trees.items():
        lines = [getattr(node, "lineno", 0) for node in ast.walk(tree) if is_found(node)]
        if lines:
            return f"line {min(lines)}" + (f" of {module}" if module else "")
    return None


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
            return set(name.split("."))
    return set()
