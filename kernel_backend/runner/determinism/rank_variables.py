"""The variables by which a launcher tells a rank its place and its devices: a definition cannot set them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from kernel_backend.model.launch.launch_spec import OF_RANKS

_OF_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@contextmanager
def protected_rank_variables(note: Callable[[str], None], also: Collection[str] = ()) -> Iterator[None]:
    """Give variables of the launcher, and `also` others, their values again that are set within; say which were.

    Notebooks that try torch.distributed set RANK=0 and WORLD_SIZE=1: each rank would train alone.
    """
    before = _of_rank(os.environ, also)
    yield
    changed = sorted(name for name, value in before.items() if os.environ.get(name) != value)
    os.environ.update(before)
    if changed:
        note(f"the cells set {', '.join(changed)}, which tell each rank its place: the job goes on with its launcher's")


def _of_rank(environment: Mapping[str, str], also: Collection[str]) -> dict[str, str]:
    """The rank's own among these variables; what it was not started with is left to the user."""
    return {
        name: value for name, value in environment.items() if OF_RANKS.fullmatch(name) or name in (*_OF_DEVICES, *also)
    }
