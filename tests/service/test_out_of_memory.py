"""Test that a training which the kernel kills for lack of memory fails with that cause, by a real limit of memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kernel_backend import discovery
from tests.support.world import World

pytestmark = pytest.mark.distributed

LIMIT = 3_000_000_000  # bytes: a rank, its forkserver and the service need 1 GB
HUNGRY = """
import torch
from torch import nn
eaten = []
def train_data():
    x = torch.randn(64, 4)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
def model(): return nn.Linear(4, 1)
def optimizer(params): return torch.optim.SGD(params, lr=0.1)
def loss(output, target, appetite=0):
    eaten.append(torch.ones(appetite, dtype=torch.uint8))
    return nn.functional.mse_loss(output, target)
"""


class Group:
    """Control group (cgroup) of processes with a limit of memory, of whichever version this machine has."""

    def __init__(self, name: str) -> None:
        old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        self._folder = (old if old.is_dir() else new) / name
        self._folder.mkdir()
        limit = self._folder / ("memory.limit_in_bytes" if old.is_dir() else "memory.max")
        try:
            limit.write_text(str(LIMIT))
        except OSError:
            self._folder.rmdir()
            raise

    def add(self, process: psutil.Process) -> None:
        for each in (process, *process.children(recursive=True)):
            (self._folder / "cgroup.procs").write_text(str(each.pid))

    def remove(self) -> None:
        self._folder.rmdir()


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[World], None]]:
    """Provide a function that limits the memory of a service and of all that it starts."""
    try:
        group = Group(f"daylight-test-{os.getpid()}")
    except OSError as error:
        pytest.skip(f"control groups of memory cannot be made here: {error.strerror}")
    world: list[World] = []

    def limit(limited: World) -> None:
        world.append(limited)
        address = discovery.find(limited.home)
        assert address is not None
        group.add(psutil.Process(address.pid))

    yield limit
    for each in world:
        each.close()
    group.remove()


def test_a_rank_that_needs_more_than_the_limit_fails_with_it_and_one_killed_by_hand_does_not(
    tmp_path: Path, limited: Callable[[World], None]
) -> None:
    world = World(tmp_path / "home", slots=1)
    world.serve()
    limited(world)
    number = world.submit(
        HUNGRY, slots=1, max_restarts=0, epochs=100, batch_size=8, appetite=200_000_000
    ).experiment.number
    (trial,) = world.ended(number, 240.0).trials
    assert trial.failure is not None
    assert (trial.state, trial.failure.type) == ("failed", "OutOfMemory")
    assert trial.failure.message == (
        "rank 0 was ended by SIGKILL. The kernel had no memory left for it (the limit here is 3.0 GB): "
        "a smaller batch or fewer loader workers need less"
    )
    number = world.lasting(slots=1, epochs=1)
    world.reached(number, 1)
    for rank in world.ranks().values():
        rank.kill()
    world.hurry(number, attempt=2)
    overview = world.ended(number)
    failure = overview.attempts[0].failure
    assert failure is not None
    assert (overview.state, failure.message) == ("completed", "rank 0 was ended by SIGKILL (kill -9, or out of memory)")
