"""Record which data a program creates before its first training loop (its setup).

Checkpoints do not store such data if it is unchanged, but refer to it.
"""

from __future__ import annotations

import dis
import itertools
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType

from torch import Tensor, nn

from kernel_backend.runner.forms.script.state.paths import Path

# Attributes through which a tensor can be written without raising its version counter.
_UNCOUNTED = frozenset({"data", "storage", "untyped_storage", "data_ptr", "__dlpack__", "to_dlpack", "from_dlpack"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "STORE_ATTR", "LOAD_METHOD", "IMPORT_FROM"})


@dataclass
class SetupData:
    """Digests, by path, of tensors, arrays and other data that a program has created before its first training loop."""

    digests: dict[Path, str] = field(default_factory=dict)
    trees: dict[Path, str] = field(default_factory=dict)  # of large containers of plain values


class Versions:
    """Cache of tensors' digests, each valid until torch's version counter (`Tensor._version`) shows a write."""

    def __init__(self, counted: bool) -> None:
        """Set up an empty cache.

        `counted` means that all writes of the program to tensors increment torch's version counter.
        """
        self._counted = counted
        self._known: dict[int, tuple[weakref.ref[Tensor], int, int, str]] = {}

    def digest(self, tensor: Tensor) -> str | None:
        """Return the cached digest of the tensor's storage; None if there is none, or the tensor may have changed."""
        known = self._known.get(id(tensor))
        if known is None or not self._is_counted(tensor):
            return None
        held, address, version, found = known
        same = held() is tensor and tensor.data_ptr() == address and tensor._version == version
        return found if same else None

    def put(self, tensor: Tensor, digest: str) -> None:
        """Cache the digest of the tensor's storage, unless writes to the tensor are not counted."""
        if self._is_counted(tensor):
            self._known = {key: each for key, each in self._known.items() if each[0]() is not None}
            self._known[id(tensor)] = weakref.ref(tensor), tensor.data_ptr(), tensor._version, digest

    def _is_counted(self, tensor: Tensor) -> bool:
        """Return True if each write to the tensor increments torch's version counter, as far as is known.

        Excluded are tensors on a GPU, tensors that require gradients, and memory that is shared with numpy, which torch
        marks by a storage that cannot be resized.
        """
        if not self._counted or tensor.device.type != "cpu" or tensor.requires_grad or tensor.is_inference():
            return False
        storage = tensor.untyped_storage()
        return not isinstance(tensor, nn.Parameter) and storage.resizable() and not storage.is_shared()


def writes_past_versions(codes: Iterable[CodeType]) -> bool:
    """Return True if code uses an attribute, such as `data`, by which tensors are written without counting a version.

    Examples
    --------
    >>> [writes_past_versions([compile(text, "", "exec")]) for text in ("x.data.add_(1)", "x.add_(data)")]
    [True, False]
    """
    for code in codes:
        for before, each in itertools.pairwise(dis.get_instructions(code)):
            of_torch = each.argval == "data" and (before.argval == "utils" or each.opname == "IMPORT_FROM")
            if each.opname in _ATTRIBUTES and each.argval in _UNCOUNTED and not of_torch:
                return True
    return False


def is_of_module(path: Path | None) -> bool:
    """Return True if a path leads to a tensor within a module, an optimizer or an object of a library, or is None."""
    while path is not None and path[1] != "root":
        if path[1] in ("slot", "grad") or path[2] in ("_buffers", "_parameters", "state"):
            return True
        path = path[0]
    return path is None
