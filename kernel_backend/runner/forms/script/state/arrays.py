"""Read the memory of numpy arrays without copies, and refer to files that arrays map read-only."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernel_backend.runner.forms.script.state.blobs import digest
from kernel_backend.runner.forms.script.state.tombstones import NotSaved

try:
    import numpy as np
except ImportError:  # torch runs without it
    np = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Mapping

DIGESTED = 2**30  # bytes; larger mapped files are known by size and time of change alone
_digests: dict[tuple[Any, ...], str | None] = {}  # of mapped files


def memory(array: Any) -> tuple[Tensor, str]:
    """Return an array's bytes and their order; they are a view if the array is contiguous, else a copy.

    The order is `C`, or `T` if the bytes are those of the transposed array.
    """
    if array.flags.c_contiguous or not array.flags.f_contiguous:
        return _bytes(np.ascontiguousarray(array)), "C"
    return _bytes(array.T), "T"


def arranged(data: bytearray, dtype: Any, shape: tuple[int, ...], order: str) -> Any:
    """Return an array made of `data`, the bytes of an array in an `order` that `memory` has returned.

    Order `F`, written by earlier versions, means bytes in order `C`.
    """
    if order == "T":
        return np.ndarray(shape[::-1], dtype, data).T
    found = np.ndarray(shape, dtype, data)
    return np.asfortranarray(found) if order == "F" else found


def is_array(value: Any) -> bool:
    """Return True for numpy arrays, also those that map a file into memory."""
    return np is not None and type(value) in (np.ndarray, np.memmap)


def mapping(array: Any) -> tuple[Any, ...] | None:
    """Return the arguments for `mapped` to map the array's file again; None unless the array maps a file read-only."""
    if type(array) is not np.memmap or array.flags.writeable or array.filename is None:
        return None
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        return None
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    base: Any = array  # `_mmap` has no annotation
    offset = begin + array.ctypes.data - np.frombuffer(base._mmap, np.uint8).ctypes.data
    order = "C" if array.flags.c_contiguous else "F"
    laid = {"dtype": array.dtype, "offset": offset, "shape": array.shape, "order": order}
    name = os.fspath(array.filename)
    try:
        version = _version(name)
    except OSError:  # the file was deleted, and lives on only in memory
        return None
    key = (name, version, offset, array.nbytes)
    if key not in _digests:
        _digests[key] = digest(memory(array)[0]) if array.nbytes <= DIGESTED else None
    return name, version, _digests[key], laid


def mapped(name: str, version: tuple[int, int], content: str | None, laid: Mapping[str, Any]) -> Any:
    """Map a file into an array, as when the array was saved; raise NotSaved if the file has changed.

    `version` is the file's size and time of change when the array was saved. A file that was rewritten counts as
    unchanged if its content has the same digest, `content`. `laid` says how the array lies in the file.
    """
    try:
        found = np.memmap(name, mode="r", **laid)
        if _version(name) == version or (content is not None and digest(memory(found)[0]) == content):
            return found
    except (OSError, ValueError) as error:  # ValueError: the file is too short
        raise NotSaved(f"{name} cannot be mapped any more: {error}") from None
    raise NotSaved(f"{name}, which the program maps, has changed since the checkpoint")


def _version(name: str) -> tuple[int, int]:
    stat = os.stat(name)
    return stat.st_size, stat.st_mtime_ns


def _bytes(array: Any) -> Tensor:
    """Return the memory of a C-contiguous array as a uint8 tensor."""
    if not array.nbytes:
        return torch.empty(0, dtype=torch.uint8)
    held: Any = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
    held.array = array  # keeps the memory alive
    return torch.frombuffer(held, dtype=torch.uint8)
