"""Test digests of values: equal for equal values in any process, and different for others."""

from __future__ import annotations

import dataclasses
import enum
import math
import subprocess
import sys
from argparse import Namespace
from collections import Counter, OrderedDict, deque, namedtuple
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from kernel_backend.snapshots.state import MOST_BYTES, digest_of, state_of

Pair = namedtuple("Pair", "a b")


class Mode(enum.Enum):
    FAST = 1


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    layers: tuple[int, ...] = (1, 2)


def net(value: float) -> torch.nn.Module:
    made = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(made.weight, value)
    torch.nn.init.constant_(made.bias, 0)
    return made


def own(source: str, module: str = "__main__") -> object:
    """Return a value of classes that a notebook cell, or a job's definition, defines."""
    namespace = {"__name__": module}
    exec(source, namespace)
    return namespace["value"]


OWN = "class Data:\n    def __init__(self, n): self.n, self._cache = n, object()\n    __hash__ = None\nvalue = Data({})"


DISTINCT = [
    None, True, False, 0, 1, 2**70, -1, 0.0, 1.0, math.nan, math.inf, 1j, "", "1", "a", b"", b"a", ..., [], (), {},
    set(), [1, 2], [2, 1], (1, 2), [[1], 2], ["ab", "c"], ["a", "bc"], {"a": 1, "b": 2}, {"b": 2, "a": 1},
    OrderedDict(a=1, b=2), {1, 2}, {"1", "2"}, frozenset({1, 2}), range(3), Pair(1, 2), Mode.FAST, Config(),
    Config(0.2), Path("a"),
    np.arange(4), np.arange(4).reshape(2, 2), np.arange(4.0), np.float32(1), np.array("a"), np.array([None, 1]),
    np.array(["2020-01-01"], "M8[D]"), torch.arange(4), torch.arange(4.0), torch.arange(4.0, dtype=torch.bfloat16),
    torch.zeros(0), torch.tensor(1), torch.tensor([1 + 1j]), net(1), net(2), torch.float32, torch.device("cpu"),
    pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]}), pd.DataFrame({"b": [1]}), pd.Series([1]),
    pd.Series([1], name="a"), pd.Index([1]), pd.DataFrame({"a": ["x"]}),
    torch.nn.ReLU(), torch.nn.Sigmoid(), torch.nn.Dropout(0.1), torch.nn.Dropout(0.9),
    torch.nn.Sequential(net(1), torch.nn.ReLU()), torch.nn.Sequential(net(1), torch.nn.Tanh()),
    torch.nn.Sequential(net(1), net(1).requires_grad_(False)), torch.nn.Sequential(net(1), net(1)),
    SimpleNamespace(a=1), SimpleNamespace(a=2), Namespace(a=1), Counter("a"), Counter("aa"), deque([1]), deque([1], 2),
    Decimal("1.0"), Decimal("1.00"), date(2020, 1, 1), datetime(2020, 1, 1), partial(max, 1), partial(min, 1),
    partial(max, 2), {"act": torch.relu}, {"act": torch.nn.functional.gelu}, own(OWN.format(1)), own(OWN.format(2)),
    own("class Other:\n    pass\nvalue = Other()"),
]  # fmt: skip


def test_what_differs_in_kind_or_content_has_digests_of_its_own():
    digests = [digest_of(value) for value in DISTINCT]
    assert None not in digests
    assert len(set(digests)) == len(digests)


def test_what_is_equal_has_equal_digests():
    large = np.arange(24).reshape(4, 6)
    pairs = [
        (0.0, -0.0),
        (math.nan, float("nan")),
        ({"a", "b", "c"}, {"c", "b", "a"}),
        (large[::2, ::3], large[::2, ::3].copy()),
        (np.asfortranarray(large), large),
        (torch.arange(6.0).reshape(2, 3).T, torch.arange(6.0).reshape(2, 3).T.contiguous()),
        (torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j])),
        (net(1), net(1)),
        (net(1), net(1).eval()),
        (own(OWN.format(1)), own(OWN.format(1), "definition")),
        (Namespace(a=1, b=2), Namespace(b=2, a=1)),
        (torch.nn.Parameter(torch.ones(2)), torch.ones(2)),
    ]
    for one, other in pairs:
        assert digest_of(one) == digest_of(other) is not None


def test_a_digest_is_the_same_in_a_process_with_other_hashes():
    code = "from kernel_backend.snapshots.state import digest_of; print(digest_of({'a', 'b', 'c', ('d', 1)}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in "12"
    }  # fmt: skip
    assert found == {f"{digest_of({'a', 'b', 'c', ('d', 1)})}\n"}


def test_what_cannot_be_compared_is_left_out():
    around: list[object] = []
    around.append(around)

    class Own:
        __slots__ = ()

    for value in (
        Own(), [Own()], lambda: 1, (i for i in [1]), around, [0] * 300_000, sys, torch.Generator(),
        np.broadcast_to(np.zeros(1), MOST_BYTES), "x" * (MOST_BYTES + 1),
    ):  # fmt: skip
        assert state_of(value) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"lr": 0.1}, "{'lr': 0.1}"),
        ("a\nb", "'a\\nb'"),
        (np.arange(3), "array([0, 1, 2])"),
        (np.zeros((30, 4)), "ndarray of float64 (30, 4) ("),
        (torch.zeros(30), "Tensor of float32 (30,) ("),
        (net(1), "Linear ("),
        (list(range(10_000)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
    ],
)
def test_values_are_shown_in_a_line(value: object, shown: str):
    found = state_of(value)
    assert found is not None
    assert found.shown.startswith(shown)
    assert len(found.shown) <= 60
