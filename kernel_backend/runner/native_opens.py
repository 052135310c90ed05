"""Have libraries that open files in C, C++ or Rust raise Python's audit event `open`, as Python's own functions do."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import Any

from kernel_backend.runner.on_import import OnImport

_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_READS, _CHANGES, _MAKES = os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT
_MODES = {"r": _READS, "w": _ANEW, "a": _MAKES, "r+": _CHANGES}  # of HDF5, in which "a" reads what is there
_FLAGS = {"r": _READS, "w": _CHANGES, "c": _MAKES, "n": _ANEW}  # of dbm

Opens = Callable[..., tuple[Any, int]]  # path and flags of the file that a call with these arguments opens

# Libraries, and functions of pandas, of which not every file that they read is told.
_UNTOLD = re.compile(
    rb"^\s*(?:from|import)\s+(av|cv2|datasets|decord|netCDF4|osgeo|polars|pyarrow|rasterio|soundfile|tensorflow"
    rb"|torchaudio|torchcodec|torchvision\.io)\b|\b(read_parquet|read_feather|read_orc)\b",
    re.MULTILINE,
)

_told: list[OnImport] = []


def untold(code: bytes) -> str:
    """Return a library or function in a file of code that may read files without telling of it; "" for none.

    Examples
    --------
    >>> untold(b"import os, sys\\nimport cv2 as cv")
    'cv2'
    """
    found = _UNTOLD.search(code)
    return (found[1] or found[2]).decode() if found else ""


def tell() -> None:
    """Patch the libraries that are imported now, and each of the others once a program imports it."""
    if not _told:
        _told.append(OnImport({module: functools.partial(_patch, table) for module, table in _LIBRARIES.items()}))
        _told[0].begin()


def _patch(table: dict[str, Opens], module: ModuleType) -> None:
    for name, opens in table.items():
        *around, last = name.split(".")
        owner = attrgetter(".".join(around))(module) if around else module
        setattr(owner, last, _telling(getattr(owner, last), opens))


def _telling(real: Any, opens: Opens) -> Callable[..., Any]:
    @functools.wraps(real, updated=())
    def told(*args: Any, **named: Any) -> Any:
        try:
            path, flags = opens(*args, **named)
        except Exception:  # the library tells what is wrong with its arguments
            path, flags = None, 0
        if _is_file(path):
            sys.audit("open", path, "", flags)
        return real(*args, **named)

    return told


def _is_file(path: Any) -> bool:
    """Return True for the path of a file; a name in angle brackets or after a colon is that of an object in memory."""
    return isinstance(path, str | bytes | os.PathLike) and not os.fsdecode(path).startswith(("<", ":"))


def _lmdb(path: Any, _map_size: int = 0, subdir: bool = True, readonly: bool = False, *_: Any, **__: Any) -> Any:
    return os.path.join(os.fsdecode(path), "data.mdb") if subdir else path, _READS if readonly else _MAKES


# Functions and methods by module. Each is given as what it opens, as a function of its arguments.
_LIBRARIES: dict[str, dict[str, Opens]] = {
    "dbm.gnu": {"open": lambda file, flag="r", *_: (file, _FLAGS[flag[0]])},
    "duckdb": {"connect": lambda database=":", read_only=False, *_, **__: (database, _READS if read_only else _MAKES)},
    "h5py._hl.files": {"make_fid": lambda name, mode, *_, **__: (name, _MODES.get(mode, _ANEW))},
    "lmdb": {"open": _lmdb},
    "safetensors": {"safe_open": lambda filename, *_, **__: (filename, _READS)},
    "safetensors.torch": {
        "safe_open": lambda filename, *_, **__: (filename, _READS),
        "serialize_file": lambda tensors, filename, *_, **__: (filename, _ANEW),
    },
    "tables.file": {"open_file": lambda filename, mode="r", *_, **__: (filename, _MODES[mode])},
    "torch.jit._script": {"RecursiveScriptModule.save": lambda module, f, **_: (f, _ANEW)},
    "torch.serialization": {"_open_zipfile_writer": lambda name: (name, _ANEW)},
}
