"""Test of which classes a loaded model is, and who can read it once it was saved, as the guide says."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from kernel_backend.trained.own_classes import equivalent, with_own_classes

NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Provide a definition's module, which every process can import."""
    (tmp_path / "definition_of_net.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("definition_of_net")


def run_cell(source: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a cell that defines `Net` in the notebook, which is `__main__`; return its variables."""
    exec(compile(source, "<cell>", "exec"), variables := {"__name__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Net", variables["Net"], raising=False)
    return variables


def saved(model: torch.nn.Module, file: Path) -> Path:
    torch.save(model, file)
    return file


def test_a_model_of_the_notebooks_own_class_is_read_where_its_cell_has_run(definition, tmp_path, monkeypatch) -> None:
    notebook = run_cell(NET, monkeypatch)
    net = with_own_classes(definition.Net(), definition, notebook)
    assert type(net) is notebook["Net"]
    file = saved(net, tmp_path / "net.pt")
    monkeypatch.delattr(sys.modules["__main__"], "Net")  # tomorrow, in a new kernel
    with pytest.raises(AttributeError, match="Net"):
        torch.load(file, weights_only=False)
    again = run_cell(NET, monkeypatch)
    assert type(torch.load(file, weights_only=False)) is again["Net"]


def test_a_model_with_parametrizations_is_of_the_notebooks_own_class(definition, monkeypatch) -> None:
    notebook = run_cell(NET, monkeypatch)
    net, other = definition.Net(), definition.Net()
    for each in (net, other):
        each.gain = nn.Parameter(torch.ones(1))
        parametrize.register_parametrization(each, "gain", nn.Softplus())
    with_own_classes(net, definition, notebook)
    assert isinstance(net, notebook["Net"])
    assert type(other).__bases__ == (definition.Net,)
    assert torch.equal(net.gain, other.gain)


@pytest.mark.parametrize("changed", [NET.replace("Linear(2, 1)", "Linear(2, 1, bias=False)"), None])
def test_a_model_of_another_class_is_of_the_definitions_module(definition, tmp_path, monkeypatch, changed) -> None:
    notebook = {} if changed is None else run_cell(changed, monkeypatch)
    net = with_own_classes(definition.Net(), definition, notebook)
    assert type(net) is definition.Net
    monkeypatch.delattr(sys.modules["__main__"], "Net", raising=False)
    assert type(torch.load(saved(net, tmp_path / "net.pt"), weights_only=False)) is definition.Net


RECORDS = """
from abc import ABC
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from collections import namedtuple
Epoch = namedtuple("Epoch", "number loss")
class Kind(Enum):
    A = "a"
class Base(ABC):
    kind = Kind.A
@dataclass
class Config(Base):
    lr: float = 0.1
    steps: list = field(default_factory=list)
    kind: Kind = Kind.A
class Result(NamedTuple):
    config: Config
    epochs: int = 3
"""


@pytest.mark.parametrize("name", ["Kind", "Base", "Config", "Result", "Epoch"])
def test_records_and_enums_of_equal_cells_are_equivalent(name: str) -> None:
    one, other = {"__name__": "definition_of_net"}, {"__name__": "__main__"}
    exec(RECORDS, one)
    exec(RECORDS, other)
    assert equivalent(one[name], other[name], one, other)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("Kind", '"a"', '"b"'),
        ("Base", "kind = Kind.A", "kind = None"),
        ("Config", "0.1", "0.2"),
        ("Config", "default_factory=list", "default_factory=dict"),
        ("Config", '"a"', '"b"'),
        ("Result", "= 3", "= 4"),
    ],
)
def test_records_and_enums_that_were_changed_are_not_equivalent(name: str, before: str, after: str) -> None:
    one, other = {"__name__": "definition_of_net"}, {"__name__": "__main__"}
    exec(RECORDS, one)
    exec(RECORDS.replace(before, after), other)
    assert not equivalent(one[name], other[name], one, other)
