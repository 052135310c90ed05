"""Test that a trial which starts with another one's weights trains from step 0, as if they were its initial ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from gang import Trial

from kernel_backend.checkpoints.copy import copy_checkpoint
from kernel_backend.checkpoints.storage import CheckpointStorage

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Provide a training of two epochs of six steps each."""
    trial = Trial(tmp_path_factory.mktemp("parent"), slots=1)
    assert trial.run().codes == [0]
    return trial


def begun_with(parent: Trial, folder: Path, **about: Any) -> Trial:
    """Return a trial that starts with only the weights of the parent's newest checkpoint."""
    storage = CheckpointStorage(str(folder / "checkpoints"))
    assert parent.checkpoints is not None
    shutil.copytree(parent.checkpoints, storage.where(1, 1))
    child = Trial(folder / "child", checkpoints=Path(storage.where(2, 1)), **about)
    copy_checkpoint(storage, f"1.1/{parent.newest().id}:weights", child.home, 2, 1)
    return child


def test_it_begins_at_step_0_with_the_weights_and_an_optimizer_of_its_own(parent: Trial, tmp_path: Path) -> None:
    child = begun_with(parent, tmp_path, slots=2, epochs=1, params={"lr": 1e-9})
    ran = child.run(resume_from="0-0")
    assert ran.codes == [0, 0], ran.logs()
    assert ran.notes() == ["begins with the weights of another trial"]
    assert (child.newest().step, child.newest().epoch) == (6, 1.0)
    assert ran.started.resumed_from is None
    # With next to no learning rate the weights stay what they were.
    for name in ("0.weight", "4.bias"):
        assert torch.allclose(child.model()[name], parent.model()[name], atol=1e-6)
    assert not torch.equal(child.model()["1.running_mean"], parent.model()["1.running_mean"])
    assert child.newest().state["training"]["passes"] == 1


def test_after_a_fault_it_goes_on_from_its_own_checkpoint_to_the_same_bits(parent: Trial, tmp_path: Path) -> None:
    whole = begun_with(parent, tmp_path / "whole", slots=1, epochs=2)
    assert whole.run(resume_from="0-0").codes == [0]
    paused = begun_with(parent, tmp_path / "paused", slots=1, epochs=2, until=1)
    assert paused.run(resume_from="0-0").codes == [85]
    paused.until = None
    assert paused.pinned() == "6-1"
    assert paused.run(resume_from="6-1").codes == [0]
    assert paused.parts() == whole.parts()


def test_weights_of_another_model_are_told(parent: Trial, tmp_path: Path) -> None:
    ran = begun_with(parent, tmp_path, slots=1, params={"width": 8}).run(resume_from="0-0")
    assert ran.codes == [1], ran.logs()
    failure = ran.failures()[0]
    assert failure.type == "InvalidDefinition"
    assert failure.message.startswith("the weights that it begins with are of another model: ")
    assert "size mismatch for 0.weight" in failure.message


def test_weights_from_another_model_are_taken_as_far_as_they_match(parent: Trial, tmp_path: Path) -> None:
    child = begun_with(
        parent, tmp_path, slots=1, epochs=1, params={"width": 8, "lr": 1e-9}, options={"weights_from": "1"}
    )
    ran = child.run(resume_from="0-0")
    assert ran.codes == [0], ran.logs()
    (note,) = ran.notes()
    assert note.startswith("begins with the weights of another trial, except 0.weight, 0.bias, 1.weight, ")
    assert " and 1 more, which it has not, or in another shape: they begin anew" in note
    assert torch.allclose(child.model()["4.bias"], parent.model()["4.bias"], atol=1e-6)


def test_weights_of_which_none_match_are_refused(parent: Trial, tmp_path: Path) -> None:
    source = parent.source.replace("return nn.Sequential(", "return nn.ModuleList([nn.Sequential(").replace(
        "nn.Linear(width, 2)\n    )", "nn.Linear(width, 2))])"
    )
    ran = begun_with(parent, tmp_path, source=source, slots=1, options={"weights_from": "1"}).run(resume_from="0-0")
    assert ran.codes == [1], ran.logs()
    assert (
        "no weights of those that it begins with match the model's in name and shape: they are 0.weight"
        in ran.failures()[0].message
    )
