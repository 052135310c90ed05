"""Decode the tensors of a checkpoint part one after the other, so that the part is never in memory as a whole."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from kernel_backend.checkpoints.writer import DTYPES
from kernel_backend.errors import CheckpointDamaged

_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


def stream_tensors(pieces: Iterable[bytes | memoryview], size: int) -> Iterator[tuple[str, Tensor]]:
    """Yield names and tensors of a safetensors file of `size` bytes, in the order of the file, on the CPU.

    Raises CheckpointDamaged if the bytes are not a safetensors file. All pieces are read, and none is used after the
    next one is requested.
    """
    source = _Bytes(pieces)
    try:
        yield from _tensors(source, size)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RuntimeError, MemoryError) as error:
        raise CheckpointDamaged(f"a part is not in the safetensors format: {error}") from None


def _tensors(source: _Bytes, size: int) -> Iterator[tuple[str, Tensor]]:
    (length,) = struct.unpack("<Q", source.take(8))
    if length > size - 8:
        raise ValueError(f"its header has {length} bytes, and the file {size}")
    header: dict[str, Any] = json.loads(source.take(length))
    header.pop("__metadata__", None)
    at = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        tensor = torch.empty(entry["shape"], dtype=_BY_NAME[entry["dtype"]])
        if begin != at or end - begin != tensor.nbytes:
            raise ValueError(f"{name} has {tensor.nbytes} bytes, and lies at {begin} to {end}")
        source.fill(tensor)
        at = end
        yield name, tensor
    if source.rest():
        raise ValueError("it has more bytes than tensors")


class _Bytes:
    """Reader of a file that arrives in pieces; it returns the bytes in order."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")

    def take(self, count: int) -> bytearray:
        """Return the next `count` bytes; raise ValueError if there are fewer."""
        taken = bytearray(count)
        self._into(memoryview(taken))
        return taken

    def fill(self, tensor: Tensor) -> None:
        """Overwrite a contiguous tensor with the next bytes; raise ValueError if there are fewer."""
        if tensor.nbytes:
            self._into(tensor.reshape(-1).view(torch.uint8).numpy().data)

    def rest(self) -> int:
        """Read and discard all remaining pieces, and return their total length in bytes."""
        return len(self._piece) + sum(memoryview(each).nbytes for each in self._pieces)

    def _into(self, target: memoryview) -> None:
        while target:
            if not self._piece:
                found = next(self._pieces, None)
                if found is None:
                    raise ValueError("it ends early")
                self._piece = memoryview(found).cast("B") if memoryview(found).nbytes else memoryview(b"")
            count = min(len(target), len(self._piece))
            target[:count] = self._piece[:count]
            target, self._piece = target[count:], self._piece[count:]
