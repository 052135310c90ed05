"""Test that values of a job share in the notebook what they share in the job, and that what cannot come is named."""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kernel_backend.model.snapshot import MODULE
from kernel_backend.snapshots.job_values import Written, digest, shown, write
from kernel_backend.snapshots.object_graph import JOB, unpickled

PROGRAM = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 1)
def double(x):
    return 2 * x
def made():
    class Inner:
        value = 3
    return Inner
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Provide the variables of a job's program."""
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    exec(PROGRAM, vars(module))
    return vars(module)


@pytest.fixture
def notebook() -> dict[str, Any]:
    """Provide the variables of the notebook, which has classes and functions of its own by the same names."""
    held: dict[str, Any] = {"__name__": "__main__"}
    exec(PROGRAM, held)
    return held


def brought(values: dict[str, Any], notebook: dict[str, Any], most: int = 10**9) -> tuple[Written, dict[str, Any]]:
    file = io.BytesIO()
    written = write(values, file, most)
    file.seek(0)
    return written, unpickled(file, notebook, JOB)


def test_what_values_share_they_share_again(program: dict[str, Any], notebook: dict[str, Any]) -> None:
    model = program["Net"]()
    optimizer = torch.optim.Adam(model.parameters())
    model.inner(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    rows = [1, 2]
    whole = torch.arange(6.0)
    values = {"model": model, "optimizer": optimizer, "rows": rows, "more": {"rows": rows}, "w": model.inner.weight}
    written, there = brought(values | {"whole": whole, "part": whole[2:4]}, notebook)
    assert type(there["model"]) is notebook["Net"]
    assert there["optimizer"].param_groups[0]["params"][0] is there["model"].inner.weight is there["w"]
    assert torch.equal(there["w"], model.inner.weight)
    assert there["more"]["rows"] is there["rows"] is not rows
    there["part"][0] = 9
    assert there["whole"][2] == 9
    assert (written.needs, written.missing) == (("Net",), {})


def test_functions_come_by_name_where_they_have_one_and_else_by_their_code(
    program: dict[str, Any], notebook: dict[str, Any]
) -> None:
    rate = 3
    values = {"double": program["double"], "scaled": lambda x: rate * x, "counts": defaultdict(lambda: 7, a=1)}
    _, there = brought(values | {"kind": program["made"]()}, notebook)
    assert there["double"] is notebook["double"]
    assert (there["scaled"](2), there["counts"]["b"], there["kind"].value) == (6, 7, 3)


class Opposed:
    """Object that refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")

    def __repr__(self) -> str:
        raise RuntimeError


def test_what_cannot_be_pickled_is_named_and_the_rest_comes(tmp_path: Any, notebook: dict[str, Any]) -> None:
    with open(tmp_path / "log", "w") as log:
        values = {"log": [log], "rows": (each for each in "ab"), "own": {"deep": Opposed()}, "best": 0.5}
        written, there = brought(values, notebook)
    assert there == {"best": 0.5}
    assert written.missing["log"].startswith("a list cannot be pickled (PicklingError: an open file belongs to the job")
    assert "TypeError: cannot pickle 'generator' object" in written.missing["rows"]
    assert "ValueError: not me" in written.missing["own"]


def test_the_largest_values_are_left_out_beyond_the_limit(notebook: dict[str, Any]) -> None:
    values = {"large": np.zeros(100_000), "middle": np.zeros(20_000), "small": [1]}
    written, there = brought(values, notebook, most=200_000)
    assert set(there) == {"middle", "small"}
    assert written.bytes < 200_000
    assert written.missing == {
        "large": "it has 800.1 kB, and all values together may have 200.0 kB: submit with --values 970kB"
    }


def test_a_digest_changes_with_the_content_alone() -> None:
    torch.manual_seed(0)
    model, data = nn.Linear(2, 2), {"x": np.arange(3), "names": ["a", "b"]}
    before = digest(model), digest(data)
    assert before == (digest(model), digest(data))
    model.weight.data[0, 0] += 1
    data["x"][1] = 9
    assert digest(model) != before[0]
    assert digest(data) != before[1]
    assert digest(each for each in "ab") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, ...]"),
        (Opposed(), "<Opposed, whose repr raises RuntimeError>"),
        ("a\nb", r"'a\nb'"),
    ],
)
def test_a_value_is_shown_in_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_disk_that_is_full_raises() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write({"a": 1}, Full(), 10**6)
