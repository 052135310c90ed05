"""Let a program that calls `init_process_group` itself use the process group that its rank has already joined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist


@contextmanager
def one_process_group() -> Iterator[None]:
    """Make `init_process_group` do nothing in the `with` block, if the rank has joined a process group already."""
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
