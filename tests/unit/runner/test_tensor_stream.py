"""Test that a part's tensors are decoded one after another, whatever the pieces of its bytes."""

import itertools
import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.checkpoints.writer import DTYPES, decode, pieces
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.runner.checkpoint.tensor_stream import stream_tensors

TENSORS = {
    "weight": torch.arange(12.0).reshape(3, 4),
    "a scalar": torch.tensor(7),
    "nothing": torch.empty(0, 5),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "flags": torch.tensor([True, False, True]),
}


def encoded(tensors) -> bytes:
    return b"".join(bytes(each) for each in pieces(tensors))


def cut(data: bytes, *at: int) -> list[bytes]:
    bounds = [0, *sorted(each % (len(data) + 1) for each in at), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(bounds)]


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_tensors_are_the_same_however_their_bytes_are_cut(at):
    data = encoded(TENSORS)
    found = dict(stream_tensors(cut(data, *at), len(data)))
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_dtype_is_decoded_as_the_library_does(dtype):
    data = encoded({"x": torch.arange(6).to(torch.float32).to(dtype)})
    (name, found), library = next(iter(stream_tensors([data], len(data)))), decode(data)["x"]
    assert name == "x"
    assert found.dtype == library.dtype == dtype
    assert torch.equal(found.view(torch.uint8), library.view(torch.uint8))


def test_a_tensor_is_there_before_the_next_one_is_read():
    data = encoded({"first": torch.ones(4), "second": torch.ones(4)})
    read = []
    source = (read.append(each) or each for each in (data[:-16], data[-16:]))
    name, _ = next(stream_tensors(source, len(data)))
    assert (name, len(read)) == ("first", 1)


DATA = encoded(TENSORS)
HEADER = 8 + struct.unpack("<Q", DATA[:8])[0]


def with_header(change) -> bytes:
    header = json.loads(DATA[8:HEADER])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + DATA[HEADER:]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        DATA[:5],
        DATA[: HEADER - 3],
        DATA[:-1],
        DATA + b"!",
        b"\xff" * len(DATA),
        DATA[:8] + b"\x00" * (len(DATA) - 8),
        with_header(lambda header: header["weight"].update(dtype="F99")),
        with_header(lambda header: header["weight"].update(shape=[3, 5])),
        with_header(lambda header: header["weight"].update(shape=[2**50, 2**40])),
        with_header(lambda header: header["weight"].update(shape="wide")),
        with_header(lambda header: header["weight"].update(data_offsets=[4, 52])),
        with_header(lambda header: header["weight"].pop("data_offsets")),
        with_header(lambda header: header.update(weight=3)),
    ],
)
def test_other_bytes_are_told_as_damage(damaged):
    with pytest.raises(CheckpointDamaged, match="safetensors"):
        dict(stream_tensors([damaged], len(damaged)))
