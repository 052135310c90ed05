"""Kill a random process that takes part in a training."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

import psutil

from tests.support.world import World

VICTIMS = ("rank", "loader worker", "launcher", "service", "forkserver", "rank 0 in a save")


def kill(world: World, number: int, attempt: int, victim: str, draw: random.Random) -> bool:
    """Kill a process of this kind by SIGKILL; return whether there was one."""
    by: Callable[[], bool] = {
        "rank": lambda: _end(list(world.ranks().values()), draw),
        "loader worker": lambda: _end([child for rank in world.ranks().values() for child in _children(rank)], draw),
        "launcher": lambda: _end(world.processes("kernel_backend.launch "), draw),
        "service": lambda: _restart(world),
        "fetcher": lambda: _end(world.processes("kernel_backend.inputs"), draw),
        "forkserver": lambda: _end(world.forkservers(), draw),
        "rank 0 in a save": lambda: _in_a_save(world, f"{number}/1/*-{attempt}"),
    }[victim]
    return by()


def _end(processes: list[psutil.Process], draw: random.Random) -> bool:
    if not processes:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        draw.choice(processes).kill()
        return True
    return False


def _children(rank: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(rank.children(recursive=True))
    return []


def _restart(world: World) -> bool:
    world.kill_service()
    world.serve()
    return True


def _in_a_save(world: World, folders: str) -> bool:
    """Kill rank 0 while a part of a checkpoint is being written, or before its manifest is written."""
    deadline = time.monotonic() + 5
    root = world.home / "checkpoints"
    while time.monotonic() < deadline:
        if any(not (folder / "manifest.json").exists() for folder in root.glob(folders) if folder.is_dir()):
            rank = world.ranks().get(0)
            if rank is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    rank.kill()
                    return True
    return False
