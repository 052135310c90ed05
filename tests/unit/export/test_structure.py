"""Test that modules are described without a pickle, made again from that, and refused by name where they cannot be."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

from kernel_backend.export.portable.model import load
from kernel_backend.export.structure import NotDescribed, Structure
from kernel_backend.trained.skeleton import module_of, skeleton

SOURCE = """
import collections
import dataclasses
import enum
import functools
import torch
import torch.nn.functional as F
import torchmetrics
from torch import nn
from torch.nn.utils import parametrize

class Mode(enum.Enum):
    A = 1

@dataclasses.dataclass
class Cfg:
    n: int = 3
    names: tuple = ("a",)

class Symmetric(nn.Module):
    def forward(self, weight): return weight.triu() + weight.triu(1).T

double = lambda x: x * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cfg, self.mode, self.act, self.builtin, self.own = Cfg(), Mode.A, F.relu, torch.relu, double
        self.emb, self.out = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
        self.out.weight = self.emb.weight
        self.register_buffer("mask", torch.tril(torch.ones(4, 4)), persistent=False)
        self.table, self.softmax = torch.arange(4.0), functools.partial(F.softmax, dim=-1)
        self.counts, self.order = collections.defaultdict(int, x=2), collections.OrderedDict(b=1, a=2)
        self.shared, self.me, self.far = [self.cfg, self.cfg], [self], float("inf")
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.even = parametrize.register_parametrization(nn.Linear(10, 10), "weight", Symmetric())
        self.gain = nn.Parameter(torch.ones(10))
        parametrize.register_parametrization(self, "gain", nn.Softplus())
        self.again, self.norm, self.seen = self.layers[0], nn.BatchNorm1d(8), torchmetrics.MeanSquaredError()
    def forward(self, x):
        h = self.norm(self.emb(x).mean(1))
        for layer in self.layers:
            h = self.builtin(self.act(layer(h)))
        return self.softmax(self.own(self.even(self.out(h)) * self.gain)) + self.table.sum() + self.mask.sum()
"""


@pytest.fixture
def definitions(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("definitions")
    monkeypatch.setitem(sys.modules, "definitions", module)
    exec(SOURCE, vars(module))
    return module


def made_again(module: nn.Module, definitions: types.ModuleType | None, folder: Path) -> nn.Module:
    found = Structure(module, definitions)
    (folder / "definition.py").write_text(SOURCE)
    (folder / "structure.json").write_text(json.dumps({"made": "structure", "module": found.json}))
    save_model(module, str(folder / "model.safetensors"))
    if found.tensors:
        tensors = {name: each.detach().clone().contiguous() for name, each in found.tensors.items()}
        save_file(tensors, folder / "structure.safetensors")
    other: nn.Module = load(folder)
    assert list(other.state_dict()) == list(module.state_dict())
    return other


def test_attributes_of_any_kind_come_back_and_what_was_shared_is_shared(
    definitions: types.ModuleType, tmp_path: Path
) -> None:
    net = definitions.Net()
    net(torch.randint(0, 10, (4, 6)))
    net.eval()
    other = made_again(net, definitions, tmp_path)
    x = torch.randint(0, 10, (3, 6))
    assert torch.equal(net(x), other(x))
    assert not other.training
    assert type(other).__bases__[0].__name__ == "Net"
    assert torch.equal(other.even.weight, other.even.weight.T)
    assert other.out.weight is other.emb.weight
    assert other.again is other.layers[0]
    assert other.me[0] is other
    assert other.shared[0] is other.shared[1] is other.cfg
    assert (other.cfg.n, other.mode.name, other.far) == (3, "A", float("inf"))
    assert (other.counts["absent"], list(other.order)) == (0, ["b", "a"])


X = torch.randn(3, 5, 16)
LIBRARY: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True),
    "GRU": lambda: nn.GRU(16, 8),
    "Transformer": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, batch_first=True), 2),
    "convolution": lambda: nn.Sequential(nn.Conv1d(5, 3, 3, padding="same"), nn.GELU(), nn.LayerNorm(16)),
    "old weight norm": lambda: nn.utils.weight_norm(nn.Linear(16, 4)),  # type: ignore[no-untyped-call]
    "old spectral norm": lambda: nn.utils.spectral_norm(nn.Linear(16, 4)),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Linear(16, 16)), spectral_norm(weight_norm(nn.Linear(16, 4)))),
    "spectral norm": lambda: spectral_norm(nn.Conv1d(5, 3, 3)),
    "weight norm of an LSTM": lambda: weight_norm(nn.LSTM(16, 8), "weight_hh_l0"),
    "matrix exponential": lambda: orthogonal(nn.Linear(16, 16), orthogonal_map="matrix_exp"),
    "Cayley": lambda: orthogonal(nn.Linear(16, 16), orthogonal_map="cayley"),
    "Householder": lambda: orthogonal(nn.Linear(16, 4)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LIBRARY)
def test_trained_modules_of_torch_come_back(name: str, tmp_path: Path) -> None:
    module = LIBRARY[name]()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        first(module(X)).square().mean().backward()
        optimizer.step()
    loaded = module_of(skeleton(module), {})
    loaded.load_state_dict(module.state_dict())
    expected = first(module.eval()(X))
    assert torch.equal(first(loaded.eval()(X)), expected)
    exported = made_again(loaded, None, tmp_path)
    assert torch.equal(first(exported(X)), expected)
    first(exported.train()(X)).square().mean().backward()  # it can be trained on
    assert {name for name, each in exported.named_parameters() if each.grad is not None} == set(
        dict(module.named_parameters())
    )


def first(output: Any) -> torch.Tensor:
    found: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return found


class Squared(nn.Module):
    __module__ = "nowhere"

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight**2


def test_what_only_a_pickle_could_hold_is_named() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    scale = 2
    module[0].act = lambda x: x * scale
    with pytest.raises(NotDescribed, match=r"model\.0\.act is a function without a name: define it"):
        Structure(module, None)
    module[0].act = lambda x: x * 3
    assert Structure(module, None).lambdas == {"_lambda_0": "lambda x: x * 3"}
    squared = nn.Linear(2, 2)
    parametrize.register_parametrization(squared, "weight", Squared())
    with pytest.raises(
        NotDescribed, match=r"parametrizations\.weight\.0 is Squared of nowhere, which has no such name"
    ):
        Structure(squared, None)
    squared.table = torch.eye(2).to_sparse()
    with pytest.raises(NotDescribed, match=r"model\.table is a sparse_coo tensor, which safetensors cannot hold"):
        Structure(squared, None)
    with pytest.raises(NotDescribed, match=r"model\.weight is a UninitializedParameter"):
        Structure(nn.LazyLinear(2), None)
    module[0].act = open(__file__)  # noqa: SIM115
    with module[0].act, pytest.raises(NotDescribed, match=r"model\.0\.act is a TextIOWrapper"):
        Structure(module, None)
