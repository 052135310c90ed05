"""The way of a checkpoint to the disk while training goes on: copied beside the next step, written by a thread.

Between two updates of the weights nothing that a checkpoint holds changes. So the copy may take as long as the next
forward and backward pass do, and only whoever is about to change something waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import LifoQueue
from typing import NamedTuple

import torch
from torch import Tensor

Parts = Mapping[str, Mapping[str, Tensor]]  # tensors by name, by part
Memory = dict[tuple[str, str], Tensor]  # by part and name


class Cost(NamedTuple):
    """What the newest checkpoint has cost, in seconds: training stood still, and the disk was busy."""

    stall: float = 0.0
    write: float = 0.0


class HostCopy:
    """Memory of the host for the tensors of one training, made once and used again for every checkpoint.

    There are two sets of it, the second made only where a copy is wanted while the one before is still being written.
    """

    SETS = 2

    def __init__(self, device: torch.device) -> None:
        self._free: LifoQueue[Memory] = LifoQueue()
        for _ in range(self.SETS):
            self._free.put({})
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, parts: Parts, lazily: bool) -> Copying:
        """Start to copy, once there is memory for it; not `lazily` returns when all is there.

        Raises MemoryError where the host has none left.
        """
        memory = self._free.get()
        try:
            copies = {
                part: {name: _of(memory, part, name, tensor) for name, tensor in tensors.items()}
                for part, tensors in parts.items()
            }
        except (RuntimeError, MemoryError) as error:  # torch has no error of its own for a host without memory
            memory.clear()
            self._free.put(memory)
            raise MemoryError(str(error)) from error
        pairs = [(tensor, copies[part][name]) for part, tensors in parts.items() for name, tensor in tensors.items()]
        copying = Copying(copies, pairs, partial(self._free.put, memory))
        if not lazily:
            copying.now()
        elif self._side is None:
            copying.in_thread()
        else:
            copying.on_stream(self._side)
        return copying


def _of(memory: Memory, part: str, name: str, tensor: Tensor) -> Tensor:
    known = memory.get((part, name))
    if known is None or known.shape != tensor.shape or known.dtype != tensor.dtype:
        known = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        memory[part, name] = known
    return known


class Copying:
    """A copy on its way. Its memory is its own until `done`."""

    def __init__(self, copies: Parts, pairs: list[tuple[Tensor, Tensor]], done: Callable[[], None]) -> None:
        self.copies, self.done = copies, done
        self._pairs = pairs
        # Whoever writes to a tensor in place counts its version up.
        self._versions = [source._version for source, _ in pairs]
        self._future: Future[None] | None = None
        self._event: torch.cuda.Event | None = None

    def now(self) -> None:
        """Copy all of it at once: what happens to the sources from then on is of no matter."""
        self._copy()
        self._pairs, self._versions = [], []

    def in_thread(self) -> None:
        """Copy beside the training: torch lets go of the interpreter while it copies."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="copy")
        self._future = pool.submit(self._copy)
        pool.shutdown(wait=False)

    def _copy(self) -> None:
        with torch.no_grad():
            for source, target in self._pairs:
                target.copy_(source)

    def on_stream(self, side: torch.cuda.Stream) -> None:
        """Copy on a stream of its own, after what is queued by now, into pinned memory."""
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for source, target in self._pairs:
                target.copy_(source, non_blocking=True)
            self._event = side.record_event()

    def join(self) -> bool:
        """From now on the sources may change. Whether the copy is the state of the moment at which it was begun."""
        if self._future is not None:
            self._future.result()
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)
        return all(source._version == version for (source, _), version in zip(self._pairs, self._versions, strict=True))

    def arrived(self) -> None:
        """Return when every byte is in the host's memory; may be called by another thread."""
        if self._event is not None:
            self._event.synchronize()


class Background:
    """Work that a thread does, one thing after the other."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._newest: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether it is still at it."""
        return self._newest is not None and not self._newest.done()

    def begin(self, work: Callable[[], None]) -> None:
        """Have this done, after what it was given before. `work` sees to its own errors."""
        self._newest = self._pool.submit(work)

    def wait(self, seconds: float | None = None) -> None:
        """Return when all is done; raises what the newest work raised, and TimeoutError."""
        if self._newest is not None:
            self._newest.result(seconds)


class Stopwatch:
    """Adds up the time between entering and leaving it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._began
