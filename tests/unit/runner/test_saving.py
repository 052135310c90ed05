"""Test that a lazy copy has the state at its beginning, or is discarded."""

from __future__ import annotations

import threading

import pytest
import torch

from kernel_backend.runner.checkpoint.saving import Background, Copying, HostCopy

CPU = torch.device("cpu")


@pytest.mark.parametrize("lazily", [True, False])
def test_a_copy_holds_what_was_there_and_its_memory_is_used_again(lazily):
    weight = torch.randn(100, 30)
    memory = HostCopy(CPU)
    first = memory.begin({"model": {"weight": weight}}, lazily)
    assert first.join()
    copy = first.copies["model"]["weight"]
    assert torch.equal(copy, weight)
    weight.add_(1.0)
    assert not torch.equal(copy, weight)
    first.done()
    second = memory.begin({"model": {"weight": weight}}, lazily)
    assert second.join()
    assert second.copies["model"]["weight"] is copy
    assert torch.equal(copy, weight)


def test_a_copy_does_not_wait_for_the_one_before_to_be_written_but_for_the_one_before_that():
    weight = torch.zeros(3)
    memory = HostCopy(CPU)
    copies = []
    for value in range(2):
        weight.fill_(value)
        copies.append(memory.begin({"model": {"weight": weight}}, lazily=False))
    assert [copy.copies["model"]["weight"].tolist() for copy in copies] == [[0.0] * 3, [1.0] * 3]
    third: list[Copying] = []
    waits = threading.Thread(target=lambda: third.append(memory.begin({"model": {"weight": weight}}, lazily=False)))
    waits.start()
    waits.join(0.1)
    assert waits.is_alive()
    copies[0].done()
    waits.join()
    assert third[0].copies["model"]["weight"] is copies[0].copies["model"]["weight"]


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.clamp_(-0.1, 0.1),
        lambda weight: weight[3].zero_(),
        lambda weight: weight.detach().mul_(2),
    ],
)
def test_a_copy_of_what_was_changed_meanwhile_is_not_true(change):
    weight = torch.nn.Parameter(torch.randn(50, 50))
    copying = HostCopy(CPU).begin({"model": {"weight": weight}}, lazily=True)
    with torch.no_grad():
        change(weight)
    assert not copying.join()


def test_every_dtype_and_layout_is_copied_bit_by_bit():
    tensors = {
        "half": torch.randn(7).bfloat16(),
        "channels": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 4),
        "flags": torch.tensor([True, False]),
        "turned": torch.randn(4, 6).t(),
    }
    copying = HostCopy(CPU).begin({"state": tensors}, lazily=True)
    assert copying.join()
    assert all(torch.equal(copying.copies["state"][name], tensor) for name, tensor in tensors.items())


def test_a_tensor_of_another_shape_gets_memory_of_its_own():
    memory = HostCopy(CPU)
    memory.begin({"state": {"a": torch.zeros(3)}}, lazily=False).done()
    later = memory.begin({"state": {"a": torch.ones(5)}}, lazily=False)
    assert later.copies["state"]["a"].tolist() == [1.0] * 5


def test_the_background_does_one_thing_after_the_other_and_raises_what_was_raised():
    background, go, done = Background("test"), threading.Event(), []
    background.begin(lambda: (go.wait(), done.append(1)))
    assert background.busy
    with pytest.raises(TimeoutError):
        background.wait(0.01)
    go.set()
    background.begin(lambda: done.append(2))
    background.wait()
    assert done == [1, 2]
    assert not background.busy
    background.begin(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        background.wait()
