"""A job gives its model back, with the weights of the newest checkpoint that is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jupyter_ext.job import Job
from kernel_backend.checkpoints.base import Manifest, checkpoint_id
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import MODEL, encode, flatten
from kernel_backend.client import Client
from kernel_backend.errors import NotFound
from kernel_backend.home import checkpoint_folder
from kernel_backend.model.experiment import Submission
from tests.api.served import archive

DEFINITION = """\
from torch import nn
def model(width=2): return nn.Linear(width, 1, bias=False)
def train_data(): return []
def loss(output, target): return 0
"""


@pytest.fixture
def job(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path))
    id, data = archive(DEFINITION)
    client.upload_snapshot(id, data)
    made = client.submit(Submission(snapshot=id, python="/usr/bin/python3", cwd="/"))
    return Job(made.experiment.number, client)


def commit(home: Path, step: int) -> Path:
    """A checkpoint whose weights are all `step`; the file of the model's part."""
    root = checkpoint_folder(home, 1, 1)
    written, tensors = flatten({"weight": torch.full((1, 2), float(step))})
    part = Directory(root).write(checkpoint_id(step, 1), MODEL, encode(tensors))
    manifest = Manifest(
        experiment=1, trial=1, attempt=1, step=step, epoch=1.0, at=0.0, world=1, seed=0,
        params={"width": 2}, parts=(part,), state={MODEL: written},
    )  # fmt: skip
    Directory(root).commit(manifest)
    return root / manifest.id / f"{MODEL}.safetensors"


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(job: Job, tmp_path: Path) -> None:
    commit(tmp_path, 5)
    newest = commit(tmp_path, 6)
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x55")
    assert job.load().weight.tolist() == [[5.0, 5.0]]


def test_without_a_whole_checkpoint_the_damage_is_named(job: Job, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoint yet: look with"):
        job.load()
    newest = commit(tmp_path, 6)
    newest.write_bytes(b"")
    with pytest.raises(NotFound, match="part model has 0 bytes"):
        job.load()
