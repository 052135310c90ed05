"""Test modules without their tensors: recreated from a namespace, and equal bytes for equal modules."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from kernel_backend.trained.skeleton import module_of, skeleton


class Net(nn.Module):
    """Module of two layers that share a weight, with a buffer, and tensors that its state_dict does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)
        self.register_buffer("seen", torch.ones(2, dtype=torch.int64))
        self.register_buffer("mask", torch.ones(2, 2, dtype=torch.bool).tril(), persistent=False)
        self.graph, self.table = torch.eye(3).to_sparse(), torch.arange(12.0).view(3, 4)[:, 1:]
        self.apart = [nn.Parameter(torch.full((2,), 3.0)), self.mask]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both layers."""
        out: torch.Tensor = self.second(self.first(x))
        return out


@pytest.fixture
def of_program(monkeypatch: pytest.MonkeyPatch) -> type[Net]:
    monkeypatch.setattr(Net, "__module__", "__main__")
    return Net


def test_a_module_is_made_again_with_its_shared_and_frozen_tensors(of_program: type[Net]):
    net = of_program()
    data = skeleton(net)
    assert data is not None
    made = module_of(data, {"Net": of_program})
    made.load_state_dict(net.state_dict())
    assert made.second.weight is made.first.weight
    assert not made.first.bias.requires_grad
    assert torch.equal(made.mask, net.mask)
    assert made.apart[1] is made.mask
    assert isinstance(made.apart[0], nn.Parameter)
    assert torch.equal(made.apart[0], net.apart[0])
    assert made.graph.layout is torch.sparse_coo
    assert torch.equal(made.graph.to_dense(), torch.eye(3))
    assert torch.equal(made.table, net.table)
    x = torch.randn(4, 3)
    assert torch.equal(made(x), net(x))


PROGRAM = """
import torch
from torch import nn
words = open("words.txt").read().split()
count, device = len(words), torch.device("cuda")
scale = 2.0
def doubled(x): return x * scale * factor
factor = float(count)
api_token = "hf_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7"
class Words(nn.Module):
    def download(self): return api_token
    def forward(self, x): return doubled(x.to(device)) + [count for _ in range(1)][0]
"""


def test_computed_variables_that_methods_read_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("a b c")
    exec(PROGRAM, program := {"__name__": "__main__"})
    data = skeleton(program["Words"]())
    assert data is not None
    computed = ("words", "count", "factor", "api_token")
    definitions = "\n".join(line for line in PROGRAM.splitlines() if not line.startswith(computed))
    exec(definitions, names := {"__name__": "loaded"})
    made = module_of(data, names)
    assert made(torch.ones(1)).tolist() == [9.0]
    assert names["device"] == torch.device("cpu")
    assert names.keys().isdisjoint({"words", "api_token"})


def test_equal_modules_have_equal_bytes(of_program: type[Net]):
    one, other = skeleton(of_program()), skeleton(of_program())
    assert one is not None
    assert other is not None
    assert torch.equal(one, other)


def test_a_class_that_is_not_there_is_an_error(of_program: type[Net]):
    data = skeleton(of_program())
    assert data is not None
    with pytest.raises(KeyError, match="Net"):
        module_of(data, {})


def test_a_module_with_a_lambda_has_no_skeleton(of_program: type[Net]):
    net = of_program()
    net.act = lambda x: x  # type: ignore[assignment]
    assert skeleton(net) is None
