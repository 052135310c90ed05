"""Detect programs that connect their ranks themselves: calls are not split, and each rank writes its own files."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

_WIRING = {
    "init_process_group", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "DistributedOptimizer",
    "DistributedGradientTape", "Accelerator", "Fabric", "deepspeed",
}  # fmt: skip


def wires_ranks(trees: Iterable[ast.Module]) -> bool:
    """Return True if a program uses names that connect ranks, such as `init_process_group`.

    Examples
    --------
    >>> wires_ranks([ast.parse("import torch.distributed as dist; dist.init_process_group('gloo')")])
    True
    >>> wires_ranks([ast.parse("rank = 8; model = lora(model, rank)")])
    False
    """
    return any(_name(node) in _WIRING for tree in trees for node in ast.walk(tree))


@contextmanager
def one_process_group() -> Iterator[None]:
    """Make `init_process_group` a no-op in the block, if the rank has a process group of torch.distributed already."""
    if not (dist.is_available() and dist.is_initialized()):
        yield
        return
    before = dist.init_process_group, dist.destroy_process_group
    dist.init_process_group = dist.destroy_process_group = _nothing
    try:
        yield
    finally:
        dist.init_process_group, dist.destroy_process_group = before


def _nothing(*_: Any, **__: Any) -> None: ...


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name
    return ""
