"""Test a program with its own loop with checkpoints in an object store: killed, loaded and deleted."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from jupyter_ext.job.job import Job
from kernel_backend.client import Client
from kernel_backend.definition.script.parts import PART
from kernel_backend.model.disk import UNDO_S
from tests.support.object_store import object_store
from tests.support.submitted import daylight, submit_program
from tests.support.world import World, until

pytestmark = pytest.mark.distributed

ADAPTED = """
import os
import time
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
base = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 16)).requires_grad_(False)
head = nn.Linear(16, 1)
opt = torch.optim.Adam(head.parameters(), lr=0.1)
for epoch in range(4):
    for step in range(4):
        while epoch == 2 and os.path.exists("HOLD"):
            time.sleep(0.05)
        loss = head(base(torch.randn(8, 16))).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(epoch, loss.item(), flush=True)
print(head.weight.double().sum().item())
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with object_store() as url:
        yield url


@pytest.fixture
def world(bucket: str, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "home", shared_forkserver=True)
    made.serve(f"--checkpoints={bucket}/runs")
    yield made
    made.close()


@pytest.mark.long
def test_a_killed_program_goes_on_from_the_store_and_leaves_nothing_there_once_deleted(
    bucket: str, world: World, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    source = ADAPTED.replace("HOLD", str(hold))
    number = submit_program(
        world, tmp_path / "project", source, "--checkpoint-every=4steps", "--", "python", "train.py"
    )
    world.checkpointed(number)
    world.reached(number, 8)
    world.ranks()[0].kill()
    hold.unlink()
    ended = world.ended(number)
    assert (ended.state, ended.trials[0].attempt) == ("completed", 2)
    assert ended.attempts[1].resume_from is not None

    job = Job(number, Client.connect(start=False, home=world.home))
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path / "project", capture_output=True, text=True, check=True
    ).stdout
    assert "".join(f"{line}\n" for line in job.logs().splitlines()) == plain
    head = job.load("head")
    assert repr(head.weight.double().sum().item()) == plain.split()[-1]
    assert not any(each.requires_grad for each in job.load("base").parameters())

    files, stored = fsspec.filesystem("s3"), _stored(bucket, number)
    assert any(f"/{PART}.frozen" in each for each in stored)
    assert not list((world.home / "checkpoints").glob("*/*/*"))  # nothing is kept here as well
    used = json.loads(daylight(world, "du", "--json", str(number)).stdout)
    (own,) = used["experiments"]
    parts = [files.size(each) for each in stored if each.endswith(".safetensors")]
    assert own["bytes"]["checkpoints"] == sum(parts)

    assert daylight(world, "delete", str(number), "--yes").returncode == 0
    world.kill_service()
    with contextlib.closing(sqlite3.connect(world.home / "daylight.db")) as database:  # as if a day had passed
        database.execute("UPDATE experiments SET deleted_at = deleted_at - ?", (UNDO_S + 1,))
        database.commit()
    world.serve(f"--checkpoints={bucket}/runs")
    until(lambda: not _stored(bucket, number), "nothing of it is left in the store")


def _stored(bucket: str, number: int) -> list[str]:
    files = fsspec.filesystem("s3")
    files.invalidate_cache()
    return list(files.find(f"{bucket}/runs/{number}"))
