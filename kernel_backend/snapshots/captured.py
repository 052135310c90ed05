"""Write and read the notebook values that `--capture` puts into a snapshot.

Formats of numpy, safetensors and parquet are preferred to pickle, because any version of any tool reads them.
"""

from __future__ import annotations

import io
import json
import sys
import types
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from kernel_backend.errors import InvalidRequest
from kernel_backend.model import versions
from kernel_backend.model.snapshot import CAPTURED, DESCRIPTION, Captured, Snapshot
from kernel_backend.snapshots.object_graph import pickled, unpickled

_SUFFIX = {"json": "json", "npy": "npy", "parquet": "parquet", "safetensors": "safetensors"}  # else a pickle, "pkl"
_UNREAD = "__captured__"  # global of the definition: values of files that have several, of which not all are read yet
_LONGEST = 200  # characters of the names in the name of a file
_LAYOUT = "layout"  # metadata key of safetensors files that describes the container of the tensors


class WrittenValue(NamedTuple):
    """Captured value, serialised as the content of a file.

    `needs` has the names of the notebook's classes and functions to which the value refers. `definitions` has the
    folders of earlier jobs' training definitions whose classes the value uses, for example because it is a model that
    `job.load()` returned (see `snapshots/loaded`). A file may hold several values, which share objects: `together` has
    their names.
    """

    format: str
    data: bytes
    needs: tuple[str, ...] = ()
    definitions: tuple[Path, ...] = ()
    together: tuple[str, ...] = ()

    def file(self, name: str) -> str:
        """Return the archive's file name for a captured value that is called `name`."""
        stem = "+".join(self.together or [name])
        stem = stem if len(stem) <= _LONGEST else f"{self.together[0]}+{len(self.together) - 1} others"
        return f"{CAPTURED}/{stem}.{_SUFFIX.get(self.format, 'pkl')}"


def write(value: object, most: int | None = None) -> WrittenValue:
    """Return a value serialised in the simplest format that restores it exactly.

    Raises TooLarge if a pickle gets more than `most` bytes, which only shows while pickling, and pickle's error if no
    format is possible.
    """
    for attempt in (_as_npy, _as_safetensors, _as_parquet, _as_json):
        if (written := attempt(value)) is not None:
            return written
    return WrittenValue("pickle", *pickled(value, most))


def write_together(values: Mapping[str, object]) -> WrittenValue:
    """Return values by name as the content of one file, which keeps what they share; raises pickle's error."""
    return WrittenValue("graph", *pickled(dict(values)), together=tuple(values))


def read(format: str, data: bytes, namespace: Mapping[str, Any]) -> Any:
    """Return the value that `write` serialised, or the values by name that `write_together` did.

    Classes of the notebook are looked up in `namespace`.
    """
    if format == "npy":
        import numpy

        return numpy.load(io.BytesIO(data), allow_pickle=False)
    if format == "safetensors":
        return _from_safetensors(data)
    if format == "parquet":
        import pandas

        return pandas.read_parquet(io.BytesIO(data))
    return json.loads(data) if format == "json" else unpickled(io.BytesIO(data), namespace)


def captured(name: str) -> Any:
    """Return the notebook's value of this name at submission.

    Daylight writes this call into the training definition when it captures a cell; users need not write it.

    Parameters
    ----------
    name : str
        Name of the value.

    Returns
    -------
    Any
        The value.

    Raises
    ------
    InvalidRequest
        No value of this name was captured, or its file has another digest.
    """
    namespace = sys._getframe(1).f_globals
    folder = Path(namespace["__file__"]).parent
    snapshot = versions.read(Snapshot, (folder / DESCRIPTION).read_bytes())
    found: Captured | None = next((each for each in snapshot.captured if each.name == name), None)
    if found is None:
        raise InvalidRequest(f"captured({name!r}): nothing of that name travelled; submit with --capture {name}")
    if found.format != "graph":
        return _read_file(folder, found, namespace)
    unread = namespace.setdefault(_UNREAD, {})
    if name not in unread.get(found.file, {}):
        unread[found.file] = _read_file(folder, found, namespace)
    return unread[found.file].pop(name)


def _read_file(folder: Path, found: Captured, namespace: Mapping[str, Any]) -> Any:
    if (folder / CAPTURED / "loaded").is_dir():
        from kernel_backend.snapshots.loaded import take_travelled

        take_travelled(folder)
    data = (folder / found.file).read_bytes()
    if xxhash.xxh3_128_hexdigest(data) != found.digest:
        raise InvalidRequest(f"{found.file} is not the file that was submitted: its digest is another")
    return read(found.format, data, namespace)


def _as_npy(value: Any) -> WrittenValue | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject or value.dtype.metadata:
        return None
    buffer = io.BytesIO()
    numpy.save(buffer, value, allow_pickle=False)
    back = numpy.load(io.BytesIO(buffer.getvalue()), allow_pickle=False)  # some dtypes lose their field names
    return WrittenValue("npy", buffer.getvalue()) if back.dtype == value.dtype else None


def _as_safetensors(value: Any) -> WrittenValue | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    layout = next((name for kind, name in _held(torch) if type(value) is kind), None)
    tensors: dict[Any, Any] = {"tensor": value} if layout == "tensor" else value if layout else {}
    if (
        layout is None
        or not tensors
        or not all(type(key) is str and _is_plain(each, torch) for key, each in tensors.items())
    ):
        return None
    from safetensors.torch import save

    metadata = {_LAYOUT: layout, "order": json.dumps(list(tensors))}
    # Tied weights are restored as two equal tensors, which `load_state_dict` accepts.
    apart = {key: each.detach().clone(memory_format=torch.contiguous_format) for key, each in tensors.items()}
    return WrittenValue("safetensors", save(apart, metadata))


def _held(torch: types.ModuleType) -> list[tuple[type, str]]:
    return [(torch.Tensor, "tensor"), (dict, "dict"), (OrderedDict, "ordered")]


def _is_plain(value: Any, torch: types.ModuleType) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and not (value.requires_grad or value.is_quantized or value.is_complex() or value.is_conj() or value.is_neg())
    )


def _from_safetensors(data: bytes) -> Any:
    from safetensors.torch import load

    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    tensors = load(data)
    if header[_LAYOUT] == "tensor":
        return tensors["tensor"]
    made = OrderedDict if header[_LAYOUT] == "ordered" else dict
    return made((key, tensors[key]) for key in json.loads(header["order"]))


def _as_parquet(value: Any) -> WrittenValue | None:
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "DataFrame") or type(value) is not pandas.DataFrame or value.attrs:
        return None
    try:
        buffer = io.BytesIO()
        value.to_parquet(buffer, compression=None)  # uncompressed, so that it can be scanned for secrets
        back = pandas.read_parquet(io.BytesIO(buffer.getvalue()))
        pandas.testing.assert_frame_equal(value, back, check_exact=True, check_freq=True)
    except Exception:  # no pyarrow, or a table that parquet cannot hold
        return None
    return WrittenValue("parquet", buffer.getvalue())


def _as_json(value: Any) -> WrittenValue | None:
    if not _is_json(value, set()):
        return None
    return WrittenValue("json", json.dumps(value, allow_nan=False).encode())


def _is_json(value: Any, seen: set[int]) -> bool:
    """Return True if JSON restores a value exactly: it has plain types only, and contains no object twice.

    `seen` has the ids of the lists and dicts found so far; it is updated.
    """
    if value is None or type(value) in (bool, int, str):
        return not isinstance(value, int) or abs(value) < 10**4000  # Python parses longer numbers only if configured to
    if type(value) is float:
        return value - value == 0  # not NaN or infinity
    if type(value) not in (list, dict) or id(value) in seen or len(seen) > 100_000:
        return False
    seen.add(id(value))
    try:
        if isinstance(value, dict):
            return all(type(key) is str and _is_json(each, seen) for key, each in value.items())
        return all(_is_json(each, seen) for each in value)
    except RecursionError:
        return False
