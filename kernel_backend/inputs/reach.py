"""Measure whether this machine reaches a remote store, and how fast: for `daylight doctor`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple

from kernel_backend.errors import InvalidRequest
from kernel_backend.inputs.arrival import THREADS
from kernel_backend.inputs.store import MACHINE, RemoteStore
from kernel_backend.model.launch.probe import DataTest
from kernel_backend.model.sizes import size
from kernel_backend.retry import RetryPolicy

LISTED = 20_000  # objects
READ = 16 * 10**6  # bytes
MOST = 256  # objects that are read
_RETRY = RetryPolicy((0.5,), tries=2)


class Reach(NamedTuple):
    """Data of a remote store as this machine reaches it: what is there, and how fast the first bytes arrive."""

    objects: int
    bytes: int
    more: bool  # whether there are more objects than were listed
    versions: bool  # whether the store tells versions, without which data is no input
    read: int  # bytes
    seconds: float  # for these
    latency: float  # seconds of a request

    def text(self, url: str) -> str:
        """Return a sentence: `s3://b/train: 12,345 objects, 3.1 GB; the first 16 MB arrive at 220 MB/s (...)`."""
        count = f"{'more than ' if self.more else ''}{self.objects:,} object{'' if self.objects == 1 else 's'}"
        rate = size(int(self.read / self.seconds)) if self.seconds else size(self.read)
        first = "they" if self.read == self.bytes and not self.more else f"the first {size(self.read)}"
        return f"{url}: {count}, {size(self.bytes)}; {first} arrive at {rate}/s (latency {1000 * self.latency:.0f} ms)"


def tested(url: str) -> DataTest:
    """Return what `reach` finds in words for the user, or why it fails and what to do."""
    try:
        found = reach(url)
    except InvalidRequest as error:
        says, _, todo = error.message.rpartition(": ")
        return DataTest(says=says, todo=todo)
    todo = "" if found.versions else "fetch it in prepare(): its store tells no versions, which inputs need"
    return DataTest(says=found.text(url), todo=todo)


def reach(url: str) -> Reach:
    """List data of a store, up to a limit, and read its beginning, with as many requests at once as a training.

    Raises InvalidRequest, with a sentence for the user, for data that cannot be listed or read here.
    """
    store = RemoteStore(url, _RETRY, reader=MACHINE)
    found = store.listed(LISTED + 1)
    more, found = len(found) > LISTED, found[:LISTED]
    store.check(found[0])  # opens the connection
    began = time.monotonic()
    store.check(found[0])
    latency = time.monotonic() - began
    before = accumulate((each.size for each in found), initial=0)
    parts = [(each, READ - start) for each, start in zip(found[:MOST], before, strict=False) if start < READ]
    began = time.monotonic()
    with ThreadPoolExecutor(THREADS, "reach") as threads:
        read = sum(threads.map(lambda part: len(store.beginning(*part)), parts))
    passed = time.monotonic() - began
    count = sum(each.size for each in found)
    return Reach(len(found), count, more, all(each.version for each in found), read, passed, latency)
