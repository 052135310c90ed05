"""Store the bytes of a snapshot's tensors, arrays and files by digest, so that equal bytes are stored only once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import xxhash
from torch import Tensor

Blobs = dict[str, Tensor]  # one-dimensional uint8 tensors, by digest


def bytes_of(tensor: Tensor) -> Tensor:
    """Return all bytes of a tensor's storage as a tensor in host memory; a copy only if the storage is elsewhere."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),)).cpu()  # type: ignore[call-overload,no-any-return]


def digest(data: Tensor) -> str:
    """Return the xxh3-128 digest of a uint8 tensor's bytes."""
    size = data.numel()
    memory = (ctypes.c_ubyte * size).from_address(data.data_ptr()) if size else b""
    return xxhash.xxh3_128_hexdigest(memory)


def from_bytes(data: bytes) -> Tensor:
    """Return the bytes as a uint8 tensor."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def kept(own: Mapping[str, Tensor], known: Mapping[str, Tensor]) -> Blobs:
    """Return the tensors of bytes in `own`, by digest, as copies that later writes do not change.

    A copy with the same digest in `known` is used instead of a new one.
    """
    return {name: known[name] if name in known else data.clone() for name, data in own.items()}


def together(snapshots: Iterable[Any]) -> Blobs:
    """Return the bytes that snapshots refer to, by digest, in one dict."""
    return {name: data for each in snapshots for name, data in each.blobs.items()}
