"""Pickle tensors of a notebook and of a job with all that belongs to them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kernel_backend.snapshots.job_values import write
from kernel_backend.snapshots.object_graph import pickled, unpickled


def from_job(values: dict[str, Any]) -> Any:
    file = io.BytesIO()
    assert write(values, file, 2**20).missing == {}
    file.seek(0)
    return unpickled(file, {})


def from_notebook(values: dict[str, Any]) -> Any:
    return unpickled(io.BytesIO(pickled(values).data), {})


@pytest.mark.parametrize("travelled", [from_job, from_notebook])
def test_gradients_travel_with_their_tensors(travelled: Callable[[dict[str, Any]], Any]) -> None:
    w, model = torch.ones(2, requires_grad=True), torch.nn.Linear(2, 1)
    (model(w) * 2).sum().backward()  # type: ignore[no-untyped-call]
    found = travelled({"w": w, "grad": w.grad, "model": model, "alias": model.weight})
    assert found["w"].requires_grad
    assert found["w"].grad is found["grad"]
    assert torch.equal(found["w"].grad, 2 * model.weight.detach()[0])
    assert found["model"].weight is found["alias"]
    assert torch.equal(found["alias"].grad, torch.full((1, 2), 2.0))


def test_views_of_an_array_that_comes_back_share_its_memory() -> None:
    table = np.arange(6.0).reshape(3, 2)
    found = from_job({"losses": table[:, 1], "table": table, "rows": [table[::-1]], "alone": np.arange(9)[:2]})
    found["table"][2, 1] = -1
    assert found["losses"].tolist() == [1, 3, -1]
    assert found["rows"][0][0].tolist() == [4, -1]
    assert found["alone"].tolist() == [0, 1]
