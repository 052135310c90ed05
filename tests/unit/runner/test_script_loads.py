"""Test that whatever a program has trained can be loaded by its name, and that nothing is chosen silently."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pytest
import torch

from kernel_backend.errors import InvalidRequest
from kernel_backend.trained.script_modules import chosen, made, nested
from tests.support.script_runs import run

HEAD = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
    def forward(self, x): return self.linear(x)
def fit(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(2):
        net(torch.ones(2, 4)).square().mean().backward()
        opt.step()
"""
LOOP = """
opt = torch.optim.SGD({0}, lr=0.1)
for step in range(2):
    loss = {1}
    loss.backward()
    opt.step()
"""


class Trained:
    """State of a program in its last checkpoint, and the text of its variables at its end."""

    def __init__(self, folder: Any, text: str) -> None:
        path = folder / "program.py"
        path.write_text(HEAD + text)
        found = run(path, save_at=range(1, 20))
        assert (found.error, found.notes) == ("", [])
        self.states = pickle.loads(found.checkpoints[max(found.checkpoints)])[1]
        self.definitions = ModuleType("definition")
        exec(HEAD, vars(self.definitions))

    def load(self, name: str = "auto") -> Any:
        name, states = chosen(self.states, name)
        return nested(name, {each: made(each, state, self.definitions) for each, state in states.items()})


def names(value: Any) -> Any:
    """Return the value with the names of the classes of its modules in place of these."""
    if isinstance(value, list):
        return [names(each) for each in value]
    return {key: names(each) for key, each in value.items()} if isinstance(value, dict) else type(value).__name__


CONTAINERS = {
    "a list that a function fills": (
        "members = []\ndef grow():\n    for _ in range(3):\n        net = Net()\n"
        "        members.append(net)\n        fit(net)\ngrow()",
        "members",
        ["Net"] * 3,
    ),
    "a dict": ("nets = {'a': Net(), 7: Net()}\nfor net in nets.values(): fit(net)", "nets", {"a": "Net", 7: "Net"}),
    "a tuple in an object": (
        "class Pair:\n    def __init__(self): self.both = Net(), Net()\npair = Pair()\nfor net in pair.both: fit(net)",
        "pair.both",
        ["Net", "Net"],
    ),
    "lists in a dict": (
        "folds = {'a': [Net(), Net()]}\nfor net in folds['a']: fit(net)",
        "folds",
        {"a": ["Net", "Net"]},
    ),
}


@pytest.mark.parametrize(("text", "name", "expected"), CONTAINERS.values(), ids=CONTAINERS)
def test_containers_of_modules_are_loaded_as_the_program_had_them(tmp_path, text, name, expected):
    trained = Trained(tmp_path, f"other = Net()\n{text}\n")
    assert names(trained.load(name)) == expected
    with pytest.raises(InvalidRequest, match=r'several models: other, .* job\.load\("other"\)'):
        trained.load()


def test_an_element_and_the_variable_that_held_it_last_are_one_module(tmp_path):
    trained = Trained(
        tmp_path, "members = []\nfor _ in range(2):\n    model = Net()\n    fit(model)\n    members.append(model)\n"
    )
    first, last = trained.load()
    assert torch.equal(trained.load("model").linear.weight, last.linear.weight)
    assert torch.equal(trained.load("members[1]").linear.weight, last.linear.weight)
    assert not torch.equal(first.linear.weight, last.linear.weight)


def test_a_part_of_a_module_is_no_second_candidate(tmp_path):
    trained = Trained(tmp_path, "encoder = Net()\nmodel = nn.Sequential(encoder, nn.Linear(1, 1))\nfit(model)\n")
    assert names(trained.load()) == "Sequential"
    assert names(trained.load("encoder")) == "Net"


def test_of_several_models_none_is_chosen(tmp_path):
    trained = Trained(tmp_path, "teacher, model = Net(), Net()\nfit(teacher)\nfit(model)\n")
    with pytest.raises(InvalidRequest, match=r'models: teacher, model; name one, as job\.load\("teacher"\)'):
        trained.load()


def test_the_last_of_many_models_of_a_function_says_so(tmp_path, capsys):
    trained = Trained(
        tmp_path,
        "def objective(trial):\n    model = Net()\n    "
        "for _ in range(2): model(torch.ones(2, 4)).sum().backward()\nfor trial in range(3): objective(trial)\n",
    )
    assert names(trained.load()) == "Net"
    assert "model is the last of 3 modules that this variable of a function has held" in capsys.readouterr().err


def test_tensors_and_copies_of_states_are_loaded(tmp_path):
    loop = LOOP.format("[w, *bs]", "(torch.ones(2, 4) @ w + bs[0]).square().mean()")
    trained = Trained(
        tmp_path, f"w = torch.ones(4, 1, requires_grad=True)\nbs = [torch.ones(1, requires_grad=True)]{loop}"
    )
    assert trained.load("w").shape == (4, 1)
    assert not torch.equal(trained.load("w"), torch.ones(4, 1))
    assert trained.load("bs")[0].shape == (1,)
    with pytest.raises(InvalidRequest, match=r'models: w, bs; name one, as job\.load\("w"\) or --module w'):
        trained.load()


def test_the_best_state_is_loaded_beside_its_module(tmp_path):
    trained = Trained(tmp_path, "model = Net()\nbest = copy.deepcopy(model.state_dict())\nfit(model)\n")
    assert names(trained.load()) == "Net"
    assert trained.load("best").keys() == trained.load().state_dict().keys()
    assert not torch.equal(trained.load("best")["linear.weight"], trained.load().linear.weight)


def test_a_compiled_module_is_loaded(tmp_path):
    trained = Trained(tmp_path, "model = torch.compile(Net(), backend='eager')\nfit(model)\n")
    model = trained.load("model")
    with pytest.raises(TypeError, match="len"):
        bool(model)
    assert model(torch.ones(1, 4)).shape == (1, 1)


def test_a_program_without_models_says_what_to_do(tmp_path):
    with pytest.raises(InvalidRequest, match=r"run\.artifact"):
        chosen({}, "auto")
