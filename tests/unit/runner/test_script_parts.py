"""Test that a program's checkpoint stores each content once: its own part refers to tensors of its modules."""

from __future__ import annotations

import json
import pickle

import pytest
import torch._dynamo  # noqa: F401  # once, not in each forked process
from safetensors.torch import load_file, save_file

from kernel_backend.checkpoints.base import Manifest, Part
from kernel_backend.checkpoints.writer import flatten, pieces, unflatten
from kernel_backend.commands.readme import readme
from kernel_backend.definition.script.parts import BLOBS, PART, PROGRAM, SHARED, STATE
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.runner.determinism.digests import tensor_digest
from kernel_backend.runner.forms.script.named_modules import NamedModules
from tests.support.script_runs import run

PROGRAM_TEXT = """
import torch
from torch import nn
torch.manual_seed(0)
embed = nn.Embedding(50, 64)
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = embed, nn.Linear(64, 50, bias=False)
        self.head.weight = self.embed.weight
        self.conv = nn.Conv2d(8, 8, 3)
    def forward(self, x):
        return self.head(self.embed(x)).square().mean() + self.conv(torch.ones(1, 8, 3, 3)).square().mean()
model = Tied().to(memory_format=torch.channels_last)
opt = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for step in range(2):
        loss = model(torch.randint(50, (9,)))
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(epoch, loss.item())
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM_TEXT)
    return path


@pytest.fixture(scope="module")
def whole(program):
    found = run(program, save_at=range(1, 9))
    assert (found.error, found.notes) == ("", [])
    return found


def tensors_of(checkpoint):
    """Return the large tensors of both parts, by part and name."""
    _, modules, state = pickle.loads(checkpoint)
    parts = {PART: flatten(modules)[1], PROGRAM: flatten(state)[1]}
    return {(part, name): each for part, own in parts.items() for name, each in own.items() if each.nbytes >= 1024}


def test_each_content_is_stored_once(whole):
    tensors = {
        name: each for name, each in tensors_of(whole.checkpoints[3]).items() if not name[1].startswith("stations")
    }
    digests = [tensor_digest(each) for each in tensors.values()]
    assert len(set(digests)) == len(digests)
    stored = {name: each.nbytes for (part, name), each in tensors.items() if part == PART and "skeleton" not in name}
    assert stored == {"model.state.embed.weight": 4 * 50 * 64, "model.state.conv.weight": 4 * 8 * 8 * 9}
    moments = [each.nbytes for (part, _), each in tensors.items() if part == PROGRAM]
    assert moments.count(4 * 50 * 64) == moments.count(4 * 8 * 8 * 9) == 2


def test_a_program_goes_on_from_shared_contents(program, whole):
    for checkpoint in whole.checkpoints.values():
        resumed = run(program, checkpoint=checkpoint)
        assert (resumed.error, resumed.printed, resumed.values) == ("", whole.printed, whole.values)


def test_a_checkpoint_that_shares_nothing_is_restored_as_ever(program, whole):
    """Checkpoints of earlier versions have all contents of a program in its own part."""
    head, modules, state = pickle.loads(whole.checkpoints[2])
    earlier = NamedModules({}, list)
    earlier.load_state_dict(modules)
    state[BLOBS] |= earlier.contents_of(state.pop(SHARED))
    resumed = run(program, checkpoint=pickle.dumps((head, {}, state)))
    assert (resumed.error, resumed.printed, resumed.values) == ("", whole.printed, whole.values)


def test_shared_contents_that_are_others_are_not_restored(program, whole):
    head, modules, state = pickle.loads(whole.checkpoints[2])
    next(iter(modules["model"][STATE].values())).add_(1)
    resumed = run(program, checkpoint=pickle.dumps((head, modules, state)))
    assert CheckpointDamaged.__name__ in resumed.error


def test_the_readme_loads_every_module_whole(program, whole, tmp_path, monkeypatch):
    _, modules, _ = pickle.loads(whole.checkpoints[3])
    tree, tensors = flatten(modules)
    save_file({name: each.contiguous() for name, each in tensors.items()}, tmp_path / f"{PART}.safetensors")
    parts = (Part(name=PART, size=sum(map(len, pieces(tensors))), digest=""),)
    (tmp_path / "manifest.json").write_text(json.dumps({"state": {PART: tree}}))
    monkeypatch.chdir(tmp_path)
    manifest = Manifest.model_construct(
        step=3, attempt=1, trial=1, epoch=1.0, metrics={}, parts=parts, state={PART: tree}
    )
    text = readme(Experiment.model_construct(number=1, name=""), manifest, "", Snapshot.model_construct())
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ") and "definition" not in line]
    held = {"load_file": load_file}
    exec("\n".join(lines), held)
    expected = unflatten(tree, tensors)
    assert set(held["state"]) == {"model", "embed"}
    assert set(held["state"]["model"]) == {"embed.weight", "head.weight", "conv.weight", "conv.bias"}
    for name, state in held["state"].items():
        assert all(value.equal(expected[name][STATE][key]) for key, value in state.items())
