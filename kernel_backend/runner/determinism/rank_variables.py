"""Protect environment variables that give a process its rank and devices from changes by the user's cells."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from kernel_backend.model.launch.launch_spec import OF_RANKS

_OF_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@contextmanager
def protected_rank_variables(note: Callable[[str], None], also: Collection[str] = ()) -> Iterator[None]:
    """Restore the launcher's environment variables, and those in `also`, after the `with` block that runs user code.

    If the block changed some, `note` is called with a text for the user that names them. Notebooks that try out
    torch.distributed set RANK=0 and WORLD_SIZE=1: with these values each rank would train alone.
    """
    before = _of_rank(os.environ, also)
    yield
    changed = sorted(name for name, value in before.items() if os.environ.get(name) != value)
    os.environ.update(before)
    if changed:
        note(f"the cells set {', '.join(changed)}, which tell each rank its place: the job goes on with its launcher's")


@contextmanager
def hidden_rank_variables() -> Iterator[None]:
    """Remove the launcher's environment variables in the `with` block.

    Frameworks that find them would connect to the other ranks.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if OF_RANKS.fullmatch(name)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _of_rank(environment: Mapping[str, str], also: Collection[str]) -> dict[str, str]:
    """Return the variables in `environment` that give a process its rank and devices, and those named in `also`."""
    return {
        name: value for name, value in environment.items() if OF_RANKS.fullmatch(name) or name in (*_OF_DEVICES, *also)
    }
