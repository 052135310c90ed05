"""Break services and connections that a page relies on, and restore them."""

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
    """Block all of Daylight's streams to this page, from its next load on."""
    page.add_init_script(NO_STREAMS)


def read_only(page: Page, notebook: str) -> None:
    """Make the notebook read-only for this page (file modes have no effect for root)."""

    def answer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | {"writable": False})

    page.route(f"**/api/contents/{notebook}?**", answer)


@contextlib.contextmanager
def no_service(world: World) -> Iterator[None]:
    """Kill the service during the block; a held lock prevents a new one from starting."""
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
    """Move the service's database away during the block, so that it knows no experiment."""
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
