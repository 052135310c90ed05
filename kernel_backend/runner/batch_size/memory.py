"""Limit the memory of a process that tries batch sizes, and recognise errors of exhausted memory."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import torch

from kernel_backend.runner.data.auto_workers import free_memory

# Fraction left for what a few steps do not show: buffers of NCCL, loader processes, fragmentation, longer samples.
MARGIN = 0.1
# Bytes left on the CPU for threads that only a whole training has (process group, checkpoints, reports): the stack of
# each, 8 MiB, counts against a limit.
THREADS = 128 << 20
_LIMITS = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
_EXHAUSTED = ("out of memory", "can't allocate memory", "not enough memory", "_STATUS_ALLOC_FAILED")
_STATUS = Path("/proc/self/status")


def free_for_rank(ranks: int) -> int:
    """Return the bytes of main memory that each of `ranks` ranks on this node may use.

    This is the node's free memory divided by `ranks` or, if smaller, the process's own resource limit (`ulimit`).
    """
    soft = (resource.getrlimit(each)[0] for each in _LIMITS)
    return int(min([free_memory() / ranks, *(each for each in soft if each != resource.RLIM_INFINITY)]))


def limit_memory(device: torch.device, free: int) -> int:
    """Limit this process's memory, so that too large a batch raises an error; return the free bytes that were assumed.

    On a CUDA device the free bytes are those of the device, on the CPU they are `free`. The limit is lower than that by
    a margin. An allocation beyond the limit then fails before memory is exhausted: no other process suffers, and the
    kernel need not kill any.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        torch.cuda.set_per_process_memory_fraction((1 - MARGIN) * free / total, device)
        return free
    _offer_to_the_kernel()
    # A limit counts memory that is reserved, of which a part is never used: thread stacks, arenas of malloc.
    data, used = _kilobytes("VmData"), _kilobytes("RssAnon")
    wanted = int((1 - MARGIN) * free) - THREADS + 1024 * max(0, data - used)
    for each in _LIMITS:
        soft, hard = resource.getrlimit(each)
        given = [] if soft == resource.RLIM_INFINITY else [int((1 - MARGIN) * soft) - THREADS]
        own = [wanted] if each == resource.RLIMIT_DATA else []
        if own or given:
            resource.setrlimit(each, (max(0, min(own + given)), hard))
    return free


def is_exhausted(error: BaseException) -> bool:
    """Return True if the error means exhausted memory.

    On the CPU torch raises a plain RuntimeError, which is recognised by its text.
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(each in str(error) for each in _EXHAUSTED)


def _offer_to_the_kernel() -> None:
    """Make the kernel kill this process before others, in case memory is exhausted despite the limit."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{os.getpid()}/oom_score_adj").write_text("1000")


def _kilobytes(name: str) -> int:
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0
