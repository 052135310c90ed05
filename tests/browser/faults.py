"""Ways to break what a browser relies on, and to mend it again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from kernel_backend import discovery
from tests.world import World, until


@contextlib.contextmanager
def no_service(world: World) -> Iterator[None]:
    """Within, the service is dead and cannot come back: whoever is to be the next one finds the lock held."""
    with contextlib.ExitStack() as stack:

        def held() -> bool:
            if discovery.find(world.home) is not None:
                world.kill_service()
            lock = discovery.lock(world.home)
            mine = lock.__enter__()
            stack.push(lock) if mine else lock.__exit__(None, None, None)
            return mine

        until(held, "the service's lock is taken")
        yield


@contextlib.contextmanager
def empty_store(world: World) -> Iterator[None]:
    """Within, the service knows no experiment: its database was put aside."""
    aside = world.home / "aside"
    with no_service(world):
        _move(world, aside)
    try:
        world.serve()
        yield
    finally:
        with no_service(world):
            for file in world.home.glob("*.db*"):
                file.unlink()
            for file in aside.iterdir():
                shutil.move(file, world.home)
        world.serve()


def _move(world: World, aside: World) -> None:
    aside.mkdir()
    for file in world.home.glob("*.db*"):
        shutil.move(file, aside)
