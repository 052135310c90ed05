"""The variables by which a launcher tells a rank its place and its devices: a definition cannot set them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kernel_backend.model.job import OF_RANKS

_OF_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@contextmanager
def rank_variables_kept(note: Callable[[str], None]) -> Iterator[None]:
    """Give variables of the launcher that are set within their values again afterwards, and say which were.

    Notebooks that try torch.distributed set RANK=0 and WORLD_SIZE=1: each rank would train alone.
    """
    before = _of_launcher(os.environ)
    yield
    changed = sorted(name for name, value in before.items() if os.environ.get(name) != value)
    os.environ.update(before)
    if changed:
        note(f"the cells set {', '.join(changed)}, which tell each rank its place: the job goes on with its launcher's")


def _of_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The launcher's own among these variables; what it did not set is left to the user."""
    names = [name for name in environment if OF_RANKS.fullmatch(name) or name in _OF_DEVICES]
    return {name: environment[name] for name in names}
