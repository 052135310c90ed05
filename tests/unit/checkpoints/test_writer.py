"""Test that tensors and states are written to parts and read back bit for bit."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_backend.checkpoints.base import Manifest, dump, parse
from kernel_backend.checkpoints.writer import decode, flatten, pieces, unflatten
from kernel_backend.errors import CheckpointDamaged, DaylightError
from kernel_backend.runner.checkpoint.stateful import Optimizer

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.complex64, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
]  # fmt: skip


def part(tensors):
    """Return the bytes of a part."""
    return b"".join(pieces(tensors))


def there_and_back(tree):
    written, tensors = flatten(tree)
    return unflatten(json.loads(json.dumps(written)), decode(part(tensors)))


def random_tensor(dtype, shape, seed):
    """Return a tensor of random bits, including NaNs with payloads, infinities and denormals."""
    if dtype is torch.bool:
        return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8).bool()
    count = math.prod(shape) * dtype.itemsize
    bits = torch.randint(256, (count,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return bits.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).tolist() if tensor.numel() else []


tensors = st.builds(
    random_tensor,
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    seed=st.integers(0, 2**32),
)


def test_a_tensor_that_a_state_holds_twice_is_written_once():
    weight = torch.ones(3)
    tree, tensors = flatten({"net": {"weight": weight}, "inner": [weight, torch.ones(3)]})
    assert list(tensors) == ["net.weight", "inner.1"]
    net, (first, second) = unflatten(tree, tensors).values()
    assert net["weight"] is first is not second


def test_a_nested_state_comes_back_with_its_types():
    state = {
        "state": {0: {"step": torch.tensor(3.0), "history": [torch.ones(2), None]}},
        "param_groups": [{"betas": (0.9, 0.999), "params": [0, 1], "foreach": None, "lr": 0.1, "name": "all"}],
        "odd": {"$tensor": 1, "inf": math.inf, (1, 2): True},
        "milestones": Counter({7: 2, 30: 1}),
    }
    back = there_and_back(state)
    assert torch.equal(back["state"][0]["step"], torch.tensor(3.0))
    assert torch.equal(back["state"][0]["history"][0], torch.ones(2))
    assert back["state"][0]["history"][1] is None
    assert back["param_groups"] == state["param_groups"]
    assert type(back["param_groups"][0]["betas"]) is tuple
    assert back["odd"] == state["odd"]
    assert type(back["milestones"]) is Counter
    assert list(back["milestones"].elements()) == [7, 7, 30]


@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name != "__metadata__"), tensors, max_size=6))
def test_every_dtype_and_shape_comes_back_bit_by_bit(named):
    back = decode(part(named))
    assert back.keys() == named.keys()
    for name, tensor in named.items():
        assert (back[name].dtype, back[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(back[name]) == bits(tensor)


def test_tied_and_strided_tensors_are_written_each_for_itself():
    weight = torch.randn(6, 4)
    back = decode(part({"one": weight, "tied": weight, "turned": weight.T, "half": weight[:3], "last": weight[5]}))
    assert torch.equal(back["tied"], weight)
    assert torch.equal(back["turned"], weight.T)
    assert torch.equal(back["half"], weight[:3])
    assert torch.equal(back["last"], weight[5])


def test_views_that_change_signs_are_written_as_they_read():
    numbers = torch.randn(5, dtype=torch.complex64)
    back = decode(part({"conjugate": numbers.conj(), "imaginary": numbers.conj().imag}))
    assert torch.equal(back["conjugate"], numbers.conj().resolve_conj())
    assert torch.equal(back["imaginary"], -numbers.imag)


def test_the_memory_of_a_tensor_is_not_copied_and_lives_as_long_as_its_piece():
    weight = torch.zeros(1000)
    header, memory = pieces({"weight": weight})
    weight += 1  # seen through the piece: it is the same memory
    assert torch.equal(decode(header + bytes(memory))["weight"], torch.ones(1000))
    del weight
    others = [torch.full((1000,), 7.0) for _ in range(20)]
    assert torch.equal(decode(header + bytes(memory))["weight"], torch.ones(1000)), others


@pytest.mark.parametrize("tensor", [torch.zeros(2, dtype=torch.complex128), torch.eye(2).to_sparse()])
def test_a_tensor_that_the_format_cannot_hold_is_named(tensor):
    with pytest.raises(DaylightError, match=r"state\.odd is a tensor of torch\."):
        pieces({"state.odd": tensor})


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
keys = st.text(max_size=3) | st.integers(-3, 3) | st.sampled_from(["$tensor", "$map", "a.b", "__metadata__", "0"])
states = st.recursive(
    scalars | tensors,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def the_same(one, other):
    if isinstance(one, torch.Tensor):
        return (one.dtype, one.shape, bits(one)) == (other.dtype, other.shape, bits(other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(the_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(the_same, one, other)) and type(one) is type(other)
    return repr(one) == repr(other)  # NaN too, and -0.0


@given(states)
def test_any_nested_state_comes_back_through_a_manifest(state):
    tree, tensors = flatten(state)
    manifest = Manifest(
        experiment=1, trial=1, attempt=1, step=1, epoch=0.0, at=0.0, world=1, seed=0, params={}, parts=(),
        state={"state": tree},
    )  # fmt: skip
    read = parse(dump(manifest)).state["state"]
    assert the_same(unflatten(read, decode(part(tensors))), state)


def test_two_tensors_at_one_path_are_two():
    one, two = torch.ones(1), torch.zeros(1)
    back = there_and_back({"a": {"b": one}, "a.b": two, 1: one, "1": two})
    assert (back["a"]["b"], back["a.b"], back[1], back["1"]) == (one, two, one, two)


def test_what_no_checkpoint_can_hold_is_named_with_its_place():
    with pytest.raises(DaylightError, match=r"the value at state\.hook is an object of class function"):
        flatten({"state": {"hook": lambda: None}})


def test_bytes_that_are_no_part_are_damage():
    with pytest.raises(CheckpointDamaged):
        decode(b"not safetensors at all")


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_an_optimizer_goes_on_as_if_nothing_had_happened(kind):
    def trained(steps, optimizer, parameter):
        for step in range(steps):
            parameter.grad = torch.sin(parameter.detach() * (step + 1))
            optimizer.step()

    def made():
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 7))
        return parameter, getattr(torch.optim, kind)([parameter], lr=0.05)

    one, optimizer = made()
    trained(3, optimizer, one)
    two, restored = made()
    Optimizer(restored).load_state_dict(there_and_back(Optimizer(optimizer).state_dict()))
    two.data.copy_(one.data)
    trained(3, optimizer, one)
    trained(3, restored, two)
    assert torch.equal(one, two)


def test_float32_states_of_bfloat16_parameters_stay_float32():
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    optimizer.state[parameter]["momentum_buffer"] = torch.full((3,), 1 / 3)
    Optimizer(optimizer).load_state_dict(there_and_back(optimizer.state_dict()))
    assert torch.equal(optimizer.state[parameter]["momentum_buffer"], torch.full((3,), 1 / 3))
