"""Find which earlier cells' values a submitted cell changes, so that later cells wait for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from jupyter_ext.capture import capture_cell
from jupyter_ext.job.job import Job
from jupyter_ext.job.values import JobValues
from jupyter_ext.values.awaited import AwaitedValues
from jupyter_ext.values.expected import changed_objects
from kernel_backend.client import Client
from kernel_backend.model.artifacts import CellValues

SETUP = """import numpy as np, torch
from torch.utils.data import DataLoader
losses, X, rng = np.zeros(4), np.ones(4), np.random.default_rng(0)
loader = DataLoader(X)
model = torch.nn.Linear(1, 1)
"""


@pytest.mark.parametrize(
    ("cell", "changed"),
    [
        ("losses[0] = model(torch.from_numpy(X)).sum().item()", {"losses"}),
        ("losses[1:] += 1", {"losses"}),
        ("noise = rng.normal()", {"rng"}),
        ("for x in loader:\n    torch.sum(x)", set()),
    ],
)
def test_arrays_that_a_cell_writes_to_are_changed_and_data_it_reads_is_not(cell: str, changed: set[str]) -> None:
    held: dict[str, Any] = {}
    exec(SETUP, held)
    found = changed_objects(capture_cell([SETUP], cell, held), held)
    assert {*found} - {"model"} == changed


class Ended:
    """Job that has ended, with its values."""

    def __init__(self, number: int, **values: Any) -> None:
        self.number = number
        index = CellValues(values=dict.fromkeys(values, ""), bytes=0, digest="")
        self._values = JobValues(number, index, values)

    def values(self, wait: bool, arriving: object) -> JobValues:
        return self._values


def test_data_that_a_job_has_changed_comes_with_the_values_that_a_cell_waits_for() -> None:
    held: dict[str, Any] = {"model": ["untrained"], "loader": ["begun"], "table": ["old"], "X": ["read"]}
    read = held["X"]
    awaited, client = AwaitedValues(held), cast(Client, None)
    first = cast(Job, Ended(1, model=["first"], loader=["shuffled"], table=["changed"]))
    second = cast(Job, Ended(2, model=["second"]))
    awaited.expect(first, client, ["model", "losses"], "", used=["loader", "table", "X"])
    awaited.expect(second, client, ["model"], "", used=[])
    held["table"] = ["mine"]
    awaited.arrived(first)
    assert held == {"model": ["untrained"], "loader": ["shuffled"], "table": ["mine"], "X": ["read"]}
    assert held["X"] is read
    awaited.arrived(second)
    assert held["model"] == ["second"]
