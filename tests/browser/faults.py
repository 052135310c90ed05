"""Ways to break what a browser relies on, and to mend it again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import Page, Route

from kernel_backend import discovery
from tests.support.world import World, until

# Like a proxy that knows no websockets: the connection fails, whatever else goes through.
NO_STREAMS = """
const Socket = window.WebSocket;
window.WebSocket = class extends Socket {
  constructor(url, protocols) {
    super(String(url).includes('/daylight/api/stream') ? 'ws://127.0.0.1:9/' : url, protocols);
  }
};
"""


def block_streams(page: Page) -> None:
    """From the next loading of the page on, none of our streams comes through to it."""
    page.add_init_script(NO_STREAMS)


def read_only(page: Page, notebook: str) -> None:
    """To this page the notebook is one that it may not change (root may write any file, so modes prove nothing)."""

    def answer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | {"writable": False})

    page.route(f"**/api/contents/{notebook}?**", answer)


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
