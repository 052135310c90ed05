"""Test a training form that another package adds, that of PyTorch-Ignite: curves, kill and exact resume, release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from form_contract import FormContract
from gang import STAND, Trial, as_json

from kernel_backend.model.launch.exit_codes import FINISHED
from tests.plugins import IGNITE, importable, install

pytestmark = pytest.mark.distributed

# Ten steps in two epochs of five, with dropout, momentum, a schedule and a validation.
CELL = f"""
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{STAND}
lr = 0.05
torch.manual_seed(0)
x = torch.randn(60, 16)
y = (x[:, :4].sum(1) > 0).long()
loader = DataLoader(TensorDataset(x[:40], y[:40]), batch_size=8, shuffle=True)
held_out = DataLoader(TensorDataset(x[40:], y[40:]), batch_size=10)
model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
def step(engine, batch):
    stand()
    model.train()
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {{"loss": loss.item()}}
trainer = Engine(step)
evaluator = create_supervised_evaluator(model, metrics={{"loss": Loss(nn.functional.cross_entropy)}})
@trainer.on(Events.EPOCH_COMPLETED)
def validate(engine):
    schedule.step()
    evaluator.run(held_out)
trainer.run(loader, max_epochs=2)
"""


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the package importable here, and in ranks."""
    site = tmp_path_factory.mktemp("forms") / "site"
    install(IGNITE, site)
    with importable(site), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        yield


def trial(folder: Path, **more: Any) -> Trial:
    return Trial(folder, CELL, slots=1, described={"form": "ignite"}, every="1steps", **more)


@pytest.fixture(scope="module")
def whole(_installed: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Any]:
    """A training without a fault."""
    made = trial(tmp_path_factory.mktemp("whole"))
    attempt = made.run()
    assert attempt.codes == [FINISHED], attempt.logs()
    return made, attempt


def test_it_trains_with_curves_of_training_and_validation(whole: tuple[Trial, Any]) -> None:
    _, attempt = whole
    training, validation = attempt.reports("training"), attempt.reports("validation")
    assert list(training) == list(range(1, 11))
    assert list(validation) == [5, 10]
    assert {name for each in (*training.values(), *validation.values()) for name in each} == {"loss"}


@pytest.mark.parametrize("step", [3, 5, 7])
def test_a_killed_training_resumes_with_the_same_bits(tmp_path: Path, whole: tuple[Trial, Any], step: int) -> None:
    expected, plain = whole
    killed = trial(tmp_path)
    first = killed.killed_at(step)
    second = killed.run(killed.pinned())
    assert second.codes == [FINISHED], second.logs()
    assert killed.parts() == expected.parts()
    found = {**first.reports("training"), **second.reports("training")}
    assert as_json(found) == as_json(plain.reports("training"))
    assert as_json({**first.reports("validation"), **second.reports("validation")}) == as_json(
        plain.reports("validation")
    )


class TestContract(FormContract):
    """Test that the form keeps what every form promises."""

    source = CELL
    diverging = CELL.replace("lr = 0.05", "lr = 1e30")
    described: ClassVar = {"form": "ignite"}


def test_its_hyperparameters_are_those_of_the_cell(tmp_path: Path, whole: tuple[Trial, Any]) -> None:
    other = trial(tmp_path, params={"lr": 0.01})
    attempt = other.run()
    assert attempt.codes == [FINISHED], attempt.logs()
    assert attempt.reports("training")[1] == whole[1].reports("training")[1]
    assert attempt.reports("training")[2] != whole[1].reports("training")[2]
