"""Test the stand-in for other loggers' `experiment` in a LightningModule."""

from __future__ import annotations

import pytest
import torch

from kernel_backend.runner.forms.lightning.logger import Experiment


@pytest.mark.filterwarnings("error")
def test_a_loss_with_gradients_is_logged_without_a_warning() -> None:
    logged: list[dict[str, float]] = []
    Experiment(logged.append, lambda text: None).add_scalar("loss", torch.tensor(0.5, requires_grad=True) * 2)
    assert logged == [{"loss": 1.0}]
