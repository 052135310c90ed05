"""Test that registered values are restored bit for bit, in the objects that the loop holds."""

from __future__ import annotations

import json
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kernel_backend.checkpoints.writer import flatten, unflatten
from kernel_backend.errors import InvalidDefinition
from kernel_backend.runner.external_loop.folder import FolderPart
from kernel_backend.runner.external_loop.parts import joined, part_of
from kernel_backend.runner.external_loop.reports import KEPT, PendingReports, merged


def saved(value: Any) -> Any:
    """Return the state of a registered value after a checkpoint and its restoration."""
    tree, tensors = flatten(part_of("it", value).state_dict())
    return unflatten(json.loads(json.dumps(tree)), {name: tensor.clone() for name, tensor in tensors.items()})


@pytest.mark.parametrize(
    "value",
    [
        {"steps": 3, "losses": [0.5, 1e-300, float("inf")], 7: (1, "a"), "array": np.arange(3.0)},
        [1, {"deep": [np.float32(0.1)]}],
        deque([torch.ones(2), 2], maxlen=5),
        torch.arange(4.0),
    ],
)
def test_plain_values_are_restored_in_place(value):
    state, text = saved(value), repr(value)
    other = torch.zeros(4) if isinstance(value, torch.Tensor) else type(value)()
    part_of("it", other).load_state_dict(state)
    assert repr(other if not isinstance(value, deque) else deque(other, maxlen=5)) == text


@pytest.mark.parametrize(
    ("generator", "draw"),
    [
        (np.random.default_rng(1), lambda it: it.standard_normal()),
        (np.random.Generator(np.random.MT19937(1)), lambda it: it.random()),
        (np.random.RandomState(1), lambda it: it.randn()),
        (random.Random(1), lambda it: it.random()),
        (torch.Generator().manual_seed(1), lambda it: float(torch.rand((), generator=it))),
    ],
)
def test_a_generator_goes_on_where_it_was(generator, draw):
    draw(generator)
    state = saved(generator)
    expected = [draw(generator) for _ in range(5)]
    part_of("it", generator).load_state_dict(state)
    assert [draw(generator) for _ in range(5)] == expected


@pytest.mark.parametrize("kind", [list, tuple, lambda nets: dict(zip("ab", nets, strict=True))])
def test_several_modules_are_one_part(kind):
    first, second = (kind([nn.Linear(2, 1), nn.BatchNorm1d(2)]) for _ in range(2))
    part_of("nets", joined(second)).load_state_dict(saved(joined(first)))
    assert str(saved(joined(second))) == str(saved(joined(first)))
    assert joined([]) == []


def test_modules_optimizers_and_own_classes_bring_their_state():
    class Env:
        def state_dict(self) -> dict[str, Any]:
            return {"place": 3}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.place = state["place"]

    net = nn.BatchNorm1d(2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    for value, fresh in ((net, nn.BatchNorm1d(2)), (optimizer, torch.optim.Adam(nn.BatchNorm1d(2).parameters()))):
        part_of("it", fresh).load_state_dict(saved(value))
        assert str(saved(fresh)) == str(saved(value))
    env = Env()
    part_of("env", env).load_state_dict(saved(env))
    assert env.place == 3


def test_a_value_without_a_state_is_refused_by_its_name():
    with pytest.raises(InvalidDefinition, match="env is a object, which a checkpoint cannot hold: give object"):
        part_of("env", object())


def test_a_folder_has_the_files_it_had(tmp_path: Path):
    before = FolderPart(tmp_path / "before")
    (before.folder / "below").mkdir()
    (before.folder / "below" / "a.txt").write_bytes(b"abc")
    (before.folder / "empty").touch()
    state = saved(before)
    after = FolderPart(tmp_path / "after")
    (after.folder / "old").touch()
    after.load_state_dict(state)
    found = {path.relative_to(after.folder).as_posix(): path.read_bytes() for path in after.folder.rglob("*.*")}
    assert found == {"below/a.txt": b"abc"}
    assert sorted(path.name for path in after.folder.iterdir()) == ["below", "empty"]


def test_many_training_reports_are_thinned_by_their_number_alone():
    first, second = PendingReports(), PendingReports()
    for step in range(1, 3 * KEPT + 1):
        first.add("training", step, 0.0, {"loss": 1.0}, 1.0)
        first.add("training", step, 0.0, {"other": 1.0}, 1.0)
    kept = [each.step for each in first.take() if "loss" in each.metrics]
    assert kept == [*range(1, KEPT + 1), *range(KEPT + 10, 3 * KEPT + 1, 10)]
    half = PendingReports()
    for step in range(1, 1501):
        half.add("training", step, 0.0, {"loss": 1.0}, 1.0)
    second = PendingReports(half.count)  # after a restart
    for step in range(1501, 3 * KEPT + 1):
        second.add("training", step, 0.0, {"loss": 1.0}, 1.0)
    assert [each.step for each in half.take() + second.take()] == kept


def test_reports_of_ranks_are_means_by_samples_and_validations_are_all_kept():
    one, two = PendingReports(10 * KEPT), PendingReports(10 * KEPT)
    one.add("validation", 4, 1.0, {"loss": 1.0, "mine": torch.tensor(0.25)}, 3.0)
    two.add("validation", 4, 1.0, {"loss": 2.0}, 1.0)
    assert one.validates
    assert len(one) == 1
    (report,) = merged([one.take(), two.take()])
    assert (report.step, report.kind, report.metrics) == (4, "validation", {"loss": 1.25, "mine": 0.25})
    assert not one
    with pytest.raises(InvalidDefinition, match="metric loss is a tensor of shape"):
        one.add("validation", 5, 1.0, {"loss": torch.ones(3)}, 1.0)
