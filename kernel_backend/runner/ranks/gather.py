"""Gather objects from all ranks on rank 0, in pieces that are small enough for every backend."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from kernel_backend.runner.ranks.backends import Ranks

PIECE = 64 << 20  # bytes that each rank sends at once


def gather_objects(value: Any, ranks: Ranks, device: torch.device) -> list[Any]:
    """Gather the `value` of each rank; return the list of them on rank 0, in rank order, and [] elsewhere.

    All ranks call it. The values are sent as tensors on `device`. Raises the error of pickling if a value cannot be
    pickled.
    """
    if ranks.size == 1:
        return [value]
    root = ranks.rank == 0
    data = bytearray() if root else bytearray(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    lengths = ranks.all_gather_object(len(data))
    found = [bytearray() for _ in range(ranks.size)]
    for start in range(0, max(lengths), PIECE):
        sizes = [max(0, min(PIECE, length - start)) for length in lengths]
        piece = (
            torch.frombuffer(data, dtype=torch.uint8)[start : start + PIECE]
            if data
            else torch.empty(0, dtype=torch.uint8)
        )
        sends = [len(piece)] + [0] * (ranks.size - 1)
        got = ranks.all_to_all(piece.to(device), sends, sizes if root else [0] * ranks.size, "gathered objects")
        for rank, part in enumerate(torch.split(got.cpu(), sizes) if root else ()):
            found[rank] += part.numpy().tobytes()
    return [value, *(pickle.loads(each) for each in found[1:])] if root else []
