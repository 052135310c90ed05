"""Compute digests of samples from their contents alone, independent of the order of loading.

A sample is traversed before it is collated. Each number, string or tensor becomes bytes that begin with its kind; the
values of a tensor are replaced by the xxh3-64 of its memory. A container begins with its length. The xxh3-64 of all
these bytes is the sample's digest. The digest of several samples is the sum of their digests modulo 2**64.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from xxhash import xxh3_64_digest, xxh3_64_intdigest

MODULUS = 2**64
_DTYPE = attrgetter("dtype")


class SampleDigests(NamedTuple):
    """Combined digest of some samples, with the number of samples."""

    samples: int = 0
    digest: int = 0  # sum of the samples' digests, modulo 2**64
    uncovered: int = 0  # samples without a digest

    def and_(self, other: SampleDigests) -> SampleDigests:
        """Return the combined digest of all samples of this digest and of `other`."""
        digest = (self.digest + other.digest) % MODULUS
        return SampleDigests(self.samples + other.samples, digest, self.uncovered + other.uncovered)


def see(samples: Sequence[Any]) -> SampleDigests:
    """Return the combined digest of some samples.

    No random numbers are drawn. Tensors that are contiguous and in host memory are not copied.
    """
    digest = uncovered = 0
    for sample in samples:
        found = sample_digest(sample)
        if found is None:
            uncovered += 1
        else:
            digest += found
    return SampleDigests(len(samples), digest % MODULUS, uncovered)


def see_rows(tensors: Sequence[Tensor]) -> SampleDigests:
    """Return the combined digest of samples whose columns are given as tensors, with one row per sample.

    The result is that of `see` for the rows as tuples, but takes less time.
    """
    count = len(tensors[0])
    try:
        columns = [_of_rows(tensor) for tensor in tensors]
    except Exception:  # a tensor whose memory cannot be read
        return SampleDigests(count, 0, count)
    first, *others = columns
    first = [_holds(b"(", len(columns)) + word for word in first]
    digest = sum(xxh3_64_intdigest(b"".join(words)) for words in zip(first, *others, strict=True))
    return SampleDigests(count, digest % MODULUS)


def are_rows(samples: Sequence[Any]) -> bool:
    """Return True if the samples are tuples of tensors of equal dtypes.

    Then the digests can be computed from their columns (`see_rows`), which is faster.
    """
    if set(map(type, samples)) != {tuple} or len(set(map(len, samples))) != 1 or not samples[0]:
        return False
    columns = zip(*samples, strict=True)
    return all(set(map(type, each)) == {Tensor} and len(set(map(_DTYPE, each))) == 1 for each in columns)


def sample_digest(sample: Any) -> int | None:
    """Return the xxh3-64 of a sample; None if it contains a value that can be neither traversed nor pickled."""
    words: list[bytes] = []
    try:
        _walk(sample, words.append)
    except Exception:  # raised by a user's class, or by a list that contains itself
        return None
    return xxh3_64_intdigest(b"".join(words))


Say = Callable[[bytes], None]


def _walk(value: Any, say: Say) -> None:
    _KINDS.get(type(value), _other)(value, say)


def _tensor(value: Tensor, say: Say) -> None:
    say(_head(value.dtype, value.shape))
    try:
        array: Any = value.numpy()
        digest = xxh3_64_digest(array)
    except (
        TypeError,
        RuntimeError,
        ValueError,
        BufferError,
    ):  # on another device, or not contiguous: checking first costs more
        digest = xxh3_64_digest(_memory(value))
    say(digest)


def _memory(value: Tensor) -> Any:
    """Return a tensor's values as an array, in the order of their indices; they are copied only if necessary."""
    if value.requires_grad:
        value = value.detach()
    if value.device.type != "cpu":
        value = value.cpu()
    if value.is_complex():
        value = value.resolve_conj()
    if value.is_neg():
        value = value.resolve_neg()
    if not value.is_contiguous():
        value = value.contiguous()
    if (like := _UNKNOWN_TO_NUMPY.get(value.dtype)) is not None:
        value = value.view(like)
    return value.numpy()


_UNKNOWN_TO_NUMPY = {torch.bfloat16: torch.int16} | {
    each: torch.uint8 for name, each in vars(torch).items() if isinstance(each, torch.dtype) and "float8" in name
}
_heads: dict[tuple[Any, ...], bytes] = {}


def _head(dtype: Any, shape: tuple[int, ...]) -> bytes:
    found = _heads.get((dtype, shape))
    if found is None:
        found = _marked(b"t", f"{dtype}{tuple(shape)}".encode())
        if len(_heads) < 10_000:  # limits the cache, as sentences differ in length
            _heads[dtype, shape] = found
    return found


def _of_rows(tensor: Tensor) -> list[bytes]:
    """Return, for each row of a tensor, the bytes that represent that row in the digest of its sample.

    They equal what `_tensor` would pass to its argument `say` for the row alone.
    """
    head = _head(tensor.dtype, tensor.shape[1:])
    memory = memoryview(_memory(tensor).reshape(-1).view("u1"))
    size = len(memory) // len(tensor)
    return [head + xxh3_64_digest(memory[row * size : (row + 1) * size]) for row in range(len(tensor))]


def _holds(mark: bytes, count: int) -> bytes:
    return b"%b%d," % (mark, count)


def _marked(mark: bytes, content: bytes) -> bytes:
    return b"%b%d,%b" % (mark, len(content), content)


def _list(value: Sequence[Any], say: Say) -> None:
    say(_holds(b"[" if isinstance(value, list) else b"(", len(value)))
    for each in value:
        _KINDS.get(type(each), _other)(each, say)


def _dict(value: Mapping[Any, Any], say: Say) -> None:
    say(_holds(b"{", len(value)))
    for key in value if len(value) < 2 else sorted(value, key=_encoded):
        _walk(key, say)
        _walk(value[key], say)


def _set(value: AbstractSet[Any], say: Say) -> None:
    say(_holds(b"<", len(value)))
    for each in sorted(map(_encoded, value)):
        say(each)


def _encoded(value: Any) -> bytes:
    words: list[bytes] = []
    _walk(value, words.append)
    return b"".join(words)


def _int(value: int, say: Say) -> None:
    say(b"i%d," % value)


def _float(value: float, say: Say) -> None:
    say(struct.pack("<cd", b"f", value))


def _array(value: Any, say: Say) -> None:
    numpy = sys.modules["numpy"]
    say(_marked(b"a", f"{value.dtype.str}{value.shape}".encode()))
    if value.dtype.hasobject:
        _list(value.ravel().tolist(), say)
    else:
        say(xxh3_64_digest(numpy.ascontiguousarray(value).reshape(-1).view("u1")))


def _image(value: Any, say: Say) -> None:
    say(_marked(b"p", f"{value.mode}{value.size}".encode()))
    say(xxh3_64_digest(value.tobytes()))


_KINDS: dict[type, Callable[[Any, Say], None]] = {
    Tensor: _tensor,
    tuple: _list,
    list: _list,
    dict: _dict,
    set: _set,
    frozenset: _set,
    int: _int,
    float: _float,
    bool: lambda value, say: say(b"T" if value else b"F"),
    type(None): lambda value, say: say(b"N"),
    str: lambda value, say: say(_marked(b"s", value.encode("utf-8", "surrogatepass"))),
    bytes: lambda value, say: say(_marked(b"b", value)),
    bytearray: lambda value, say: say(_marked(b"b", value)),
    complex: lambda value, say: say(struct.pack("<cdd", b"c", value.real, value.imag)),
}


def _other(value: Any, say: Say) -> None:
    """Pass the bytes that represent a value to `say`; used for classes without a function of their own.

    A container is represented by class name and items, any other value by its pickle.
    """
    kind = type(value)
    if isinstance(value, Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            _tensor(value.as_subclass(Tensor), say)
    elif (known := _of_library(value)) is not None:
        known(value, say)
    elif isinstance(value, tuple | list):
        say(_marked(b"o", kind.__qualname__.encode()))
        _list(value, say)
    elif isinstance(value, Mapping):
        _dict(value, say)
    elif dataclasses.is_dataclass(value):
        say(_marked(b"o", kind.__qualname__.encode()))
        _dict({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, say)
    else:
        with io.BytesIO() as written:
            pickler = _Pickler(written)
            pickler.root = value
            pickler.dump(value)
            say(_marked(b"o", written.getvalue()))


def _of_library(value: Any) -> Callable[[Any, Say], None] | None:
    """Return the function that digests an array or image; None for other values, or if no such library is imported."""
    numpy, images = sys.modules.get("numpy"), sys.modules.get("PIL.Image")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        return _array if isinstance(value, numpy.ndarray) else _scalar
    return _image if images is not None and isinstance(value, images.Image) else None


def _scalar(value: Any, say: Say) -> None:
    _array(sys.modules["numpy"].asarray(value), say)


class _Pickler(pickle.Pickler):
    """Pickler that replaces tensors, arrays and images inside an object by their digests."""

    root: Any = None

    def persistent_id(self, value: Any) -> bytes | None:
        if value is not self.root and (isinstance(value, Tensor) or _of_library(value) is not None):
            return _encoded(value)
        return None
