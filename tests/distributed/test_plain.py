"""Test that one slot trains exactly like a hand-written loop."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.determinism.seeds import mix, reseed

pytestmark = pytest.mark.distributed


def by_hand(path, seed=0, epochs=2, batch_size=12):
    """Train the standard definition in a plain loop, with only the random numbers of the runner."""
    spec = importlib.util.spec_from_file_location("by_hand", path)
    cell = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cell)
    x, y = cell.dataset().tensors
    reseed(mix(seed, "init", "model"))
    net = cell.model()
    optimizer = cell.optimizer(net.parameters())
    step = 0
    for epoch in range(epochs):
        for rows in Permutation(seed, epoch, 70).slice(0, 70).split(batch_size):
            reseed(mix(seed, "step", step, 0))
            optimizer.zero_grad()
            cell.loss(net(x[rows]), y[rows]).backward()
            optimizer.step()
            step += 1
    return {name: tensor.numpy().tobytes() for name, tensor in net.state_dict().items()}


def test_one_slot_equals_the_loop_written_by_hand(whole):
    trial = whole("torch", 1).trial
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert trial.weights() == by_hand(trial.folder / "code" / "definition.py")
    finally:
        torch.set_num_threads(threads)
