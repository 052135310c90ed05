"""Copy checkpoint tensors to host memory while the next step computes, and write them in a thread.

Between two updates of the weights, nothing that a checkpoint holds changes. So the copy may take as long as the next
forward and backward pass. Only code that is about to change the state must wait for the copy.
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
    """Cost of the newest checkpoint, in seconds: how long training stalled, and how long writing to storage took."""

    stall: float = 0.0
    write: float = 0.0


class HostCopy:
    """Host buffers for the tensors of one training, allocated once and reused by every checkpoint.

    There are two sets of buffers. The second is allocated only if a copy begins while the previous one is still being
    written.
    """

    SETS = 2

    def __init__(self, device: torch.device) -> None:
        self._free: LifoQueue[Memory] = LifoQueue()
        for _ in range(self.SETS):
            self._free.put({})
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, parts: Parts, lazily: bool) -> Copying:
        """Start to copy the tensors in `parts` to host memory as soon as a set of buffers is free.

        With `lazily`, return at once and copy while training continues; otherwise return when all are copied. Raises
        MemoryError if the host has no memory left.
        """
        memory = self._free.get()
        try:
            copies = {
                part: {name: _of(memory, part, name, tensor) for name, tensor in tensors.items()}
                for part, tensors in parts.items()
            }
        except (RuntimeError, MemoryError) as error:  # torch has no error class of its own for exhausted host memory
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
    """Copy of tensors to host memory, in progress; its buffers in host memory are reused after `done` is called."""

    def __init__(self, copies: Parts, pairs: list[tuple[Tensor, Tensor]], done: Callable[[], None]) -> None:
        self.copies, self.done = copies, done
        self._pairs = pairs
        # Every in-place write to a tensor increments its version.
        self._versions = [source._version for source, _ in pairs]
        self._future: Future[None] | None = None
        self._event: torch.cuda.Event | None = None

    def now(self) -> None:
        """Copy all tensors before returning, so that the source tensors may change afterwards."""
        self._copy()
        self._pairs, self._versions = [], []

    def in_thread(self) -> None:
        """Copy in a thread while the training continues, as torch releases the interpreter lock during a copy."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="copy")
        self._future = pool.submit(self._copy)
        pool.shutdown(wait=False)

    def _copy(self) -> None:
        with torch.no_grad():
            for source, target in self._pairs:
                target.copy_(source)

    def on_stream(self, side: torch.cuda.Stream) -> None:
        """Copy to pinned memory on the CUDA stream `side`, after all work that is queued on the current stream."""
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for source, target in self._pairs:
                target.copy_(source, non_blocking=True)
            self._event = side.record_event()

    def join(self) -> bool:
        """Wait until the source tensors may change; return False if one of them changed while it was copied.

        Such a copy is a mixture of two states and must be discarded.
        """
        if self._future is not None:
            self._future.result()
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)
        return all(source._version == version for (source, _), version in zip(self._pairs, self._versions, strict=True))

    def arrived(self) -> None:
        """Wait until all bytes are in host memory; a thread other than the one that started the copy may call it."""
        if self._event is not None:
            self._event.synchronize()


class Background:
    """Thread that runs submitted work, one after the other."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._newest: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Return True as long as the newest work is unfinished."""
        return self._newest is not None and not self._newest.done()

    def begin(self, work: Callable[[], None]) -> None:
        """Queue work after all earlier work; `work` handles its own errors."""
        self._newest = self._pool.submit(work)

    def wait(self, seconds: float | None = None) -> None:
        """Wait for all queued work; raise the error of the newest work, or TimeoutError after `seconds`."""
        if self._newest is not None:
            self._newest.result(seconds)


class Stopwatch:
    """Timer that sums the seconds spent in its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._began
