"""Test hyperparameters of programs without signatures: how they are found, set, and rejected."""

from __future__ import annotations

import ast
from textwrap import indent
from typing import Any

import pytest

from kernel_backend.definition.binding import configured, with_epochs
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.definition.script.definition import with_values
from kernel_backend.definition.script.hyperparameters import constants
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.search.records import Search

BATCHES = "    for x, y in loader:\n        loss_of(model(x), y).backward()\n        optimizer.step()\n"
LOOP = f"for epoch in range(EPOCHS):\n{BATCHES}"
FOLDS = (
    f"for fold in range(5):\n  net = Net(); opt = SGD(net.parameters())\n{indent(LOOP, '  ')}  print(f'loss: {{x}}')\n"
)
PARSER = """import argparse
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch-size", "-b", type=int, default=64)
    parser.add_argument("--gamma", default=0.7)
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--arch", choices=["mlp", "conv"], default="mlp")
    parser.add_argument("--width", type=int)
    parser.add_argument("--rate", dest="lr", type=float, required=True)
    args = parser.parse_args()
    for epoch in range(1, args.epochs + 1):
        for x, y in loader:
            loss_of(model(x), y).backward()
if __name__ == "__main__":
    main()
"""


def defaults(source: str) -> dict[str, Any]:
    return {name: each.default for name, each in constants(ast.parse(source)).parameters.items()}


def after(source: str, epochs: int = 1, **params: Any) -> str:
    return ast.unparse(with_values(ast.parse(source), {}, params, epochs).tree)


def test_constants_that_are_assigned_once_are_hyperparameters_with_their_types() -> None:
    source = "lr = 1e-3\na, b = 1, True\nwidth: int = 4 * 16\nname = 'relu'\nbetas = (0.9, 0.99)\nnothing = None\n"
    assert defaults(source) == {
        "lr": 1e-3,
        "a": 1,
        "b": True,
        "width": 64,
        "name": "relu",
        "betas": [0.9, 0.99],
        "nothing": None,
    }


def test_constants_of_main_and_below_its_guard_are_hyperparameters() -> None:
    source = "def main():\n    lr = 0.1\n    return lr\nif __name__ == '__main__':\n    seed = 3\n    main()\n"
    assert defaults(source) == {"lr": 0.1, "seed": 3}


@pytest.mark.parametrize(
    "source",
    [
        "best = 0.0\nfor epoch in range(3):\n    best = max(best, 1)\n",
        "count = 0\ncount += 1\n",
        "losses = []\n",
        "sizes = [1, 2]\nsizes.append(3)\n",
        "history = {'loss': 0}\n",
        "def f():\n    inner = 1\n",
        "lr = 1\ndef f():\n    global lr\n    lr = 2\n",
        "lr = make()\n",
        "_private = 1\n",
        "a = b = 1\n",
        "for lr in (1, 2):\n    lr = 3\n",
    ],
)
def test_a_state_of_the_program_is_no_hyperparameter(source: str) -> None:
    assert defaults(source) == {}


@pytest.mark.parametrize(
    "source",
    [
        "config = {'lr': 0.1, 'width': 8, 'layers': make()}\n",
        "args = Namespace(lr=0.1, width=8)\n",
        "cfg = dict(lr=0.1, width=8)\n",
        "class Config:\n    lr = 0.1\n    width: int = 8\n",
        "@dataclass\nclass Setup:\n    lr: float = 0.1\n    width: int = 8\n    def text(self): return ''\n",
    ],
)
def test_the_literals_of_a_config_are_hyperparameters(source: str) -> None:
    assert defaults(source) == {"lr": 0.1, "width": 8}
    assert "0.5" in after(source, lr=0.5)


def test_a_part_of_a_config_that_the_program_sets_is_none() -> None:
    assert defaults("config = {'lr': 0.1, 'width': 8}\nconfig['lr'] = 3\n") == {"width": 8}
    assert defaults("class CFG:\n    lr = 0.1\n    width = 8\nCFG.lr *= 2\n") == {"width": 8}


def test_a_part_of_a_config_that_a_call_gives_is_told_where_it_stands() -> None:
    source = "@dataclass\nclass Config:\n    lr: float = 0.1\n    width: int = 8\ncfg = Config(lr=0.2)\n"
    assert defaults(source) == {"width": 8}
    assert "lr stands in a call (line 5: Config(..., lr=0.2))" in constants(ast.parse(source)).refused["lr"]
    assert defaults(source.replace("lr=0.2", "0.2")) == {"width": 8}


def test_options_of_argparse_are_hyperparameters_of_their_types() -> None:
    found = constants(ast.parse(PARSER)).parameters
    kinds = {name: (each.default, each.annotation, each.required) for name, each in found.items()}
    assert kinds == {
        "epochs": (14, "int", False),
        "batch_size": (64, "int", False),
        "gamma": (0.7, None, False),
        "no_cuda": (False, None, False),
        "arch": ("mlp", "Literal['mlp', 'conv']", False),
        "width": (None, "int | None", False),
        "lr": (None, "float", True),
    }


def test_options_of_argparse_get_their_values_as_defaults() -> None:
    found: dict[str, Any] = {}
    source = PARSER.replace("    for epoch", "    found.update(vars(args))\n    return\n    for epoch")
    params = {"batch_size": 3, "no_cuda": True, "arch": "conv", "lr": 0.1, "width": 7, "gamma": 0.7}
    tree = with_values(ast.parse(source.replace("parse_args()", "parse_args([])")), {}, params, 2).tree
    exec(compile(tree, "train.py", "exec"), {"__name__": "__main__", "found": found})
    assert found == {**params, "epochs": 2}


def test_a_value_takes_the_place_of_the_programs_own_in_its_line() -> None:
    source = "lr = 1e-3\na, b = 1, 2\nbetas = (0.9, 0.99)\n"
    assert after(source, lr=0.5, b=7, betas=[0.1, 0.2]) == "lr = 0.5\na, b = (1, 7)\nbetas = (0.1, 0.2)"
    tree = with_values(ast.parse(source), {}, {"b": float("inf")}, 1).tree
    assert {each.lineno for each in ast.walk(tree.body[1]) if hasattr(each, "lineno")} == {2}
    exec(compile(tree, "train.py", "exec"), held := {})
    assert held["b"] == float("inf")


def test_a_value_that_is_the_programs_own_changes_nothing() -> None:
    assert after("lr = 1e-3\nwidth = 4 * 16\n", lr=1e-3, width=64) == "lr = 0.001\nwidth = 4 * 16"


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            f"lr = 1\nEPOCHS = 2\n{LOOP}lr = 2\n",
            "lr",
            "lr is assigned in line 1 and again in line 7, so that it is a state of the program",
        ),
        (
            f"EPOCHS = 2\noptimizer = torch.optim.Adam(net.parameters(), lr=5e-3)\n{LOOP}",
            "lr",
            "lr stands in a call (line 2: torch.optim.Adam(..., lr=0.005)) and has no name of its own: "
            "write lr = 0.005 above, and lr=lr in the call",
        ),
        (
            f"EPOCHS = 2\ndef make(width=8): ...\n{LOOP}",
            "width",
            "width is the default of an argument (line 2: def make(..., width=8)): write width = 8 at top level",
        ),
        (f"EPOCHS = 2\nlr = 0.1 * world\n{LOOP}", "lr", "lr is computed (line 2: lr = 0.1 * world)"),
        (
            f"EPOCHS = 2\nlr = 0.1\nconfig = {{'lr': 0.2}}\n{LOOP}",
            "lr",
            "lr could be lr (line 2) and config.lr (line 3), so that one value cannot be given: rename one of them",
        ),
        (f"EPOCHS = 2\nlearning_rate = 0.1\n{LOOP}", "learning_rat", "(did you mean learning_rate?)"),
        (f"EPOCHS = 2\nLR = 0.1\n{LOOP}", "lr", "(did you mean LR?)"),
    ],
)
def test_a_name_that_is_none_is_told_with_what_to_write(source: str, name: str, message: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        parse(source).bind({name: 3})
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("source", "count", "name", "written"),
    [
        (f"EPOCHS = 5\n{LOOP}", 5, "EPOCHS", "EPOCHS = 9"),
        (f"for epoch in tqdm(range(1, 5 + 1)):\n{BATCHES}", 5, "", "for epoch in tqdm(range(1, 9 + 1)):"),
        (f"cfg = {{'epochs': 3}}\nfor epoch in range(cfg['epochs']):\n{BATCHES}", 3, "epochs", "cfg = {'epochs': 9}"),
        (PARSER, 14, "epochs", "    parser.add_argument('--epochs', type=int, default=9)"),
        (
            f"def fit(model, epochs=3):\n{LOOP.replace('EPOCHS', 'epochs')}".replace("\nfor", "\n  for") + "fit(net)\n",
            3,
            "",
            "def fit(model, epochs=9):",
        ),
        (
            "class Trainer:\n  def __init__(self, net, epochs):\n    self.epochs = epochs\n  def fit(self):\n"
            "    for epoch in range(self.epochs):\n      for x in loader:\n        self.net(x).backward()\n"
            "Trainer(net, 4).fit()\n",
            4,
            "",
            "Trainer(net, 9).fit()",
        ),
    ],
)
def test_the_number_of_epochs_is_found_and_set_where_it_is_written(
    source: str, count: int, name: str, written: str
) -> None:
    found = parse(source)
    assert (found.form, found.settings, found.epochs_name) == ("script", {"epochs": count}, name)
    assert name not in found.hyperparameters
    assert written in after(source, epochs=9).splitlines()
    assert after(source, epochs=count) == ast.unparse(ast.parse(source))


def test_the_programs_own_name_means_the_number_of_epochs() -> None:
    found = parse(f"EPOCHS = 5\n{LOOP}")
    config, rest = with_epochs(found, Config(), {"EPOCHS": 9})
    assert (config.epochs, rest, configured(found, config).epochs) == (9, {}, 9)
    assert configured(found, Config()).epochs == configured(found, Config()).known_epochs == 5
    with pytest.raises(InvalidDefinition, match="EPOCHS=9 and --epochs 3 are both the number of epochs"):
        with_epochs(found, Config(epochs=3), {"EPOCHS": 9})
    with pytest.raises(InvalidDefinition, match="EPOCHS=0: EPOCHS is the number of epochs"):
        with_epochs(found, Config(), {"EPOCHS": 0})


def test_a_search_over_a_program_with_folds_counts_these() -> None:
    definition = parse(FOLDS)
    config = configured(definition, Config(search=Search(method="tpe")))
    assert (config.epochs, config.known_epochs) == (5, 5)
    check_options(definition, config)
    with pytest.raises(InvalidDefinition, match="--epochs 9 cannot be given"):
        check_options(definition, configured(definition, Config(search=Search(method="tpe"), epochs=9)))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (f"while loss > 0.1:\n{BATCHES}", "line 1 loops while loss > 0.1, without a number of epochs"),
        ("for x in loader:\n    f(x).backward()\n", "line 1 loops over loader, which is no range of epochs"),
        (f"{LOOP}{LOOP}".replace("EPOCHS", "3"), "there is no one loop of epochs (line 1 and line 5)"),
        (f"for epoch in range(count()):\n{BATCHES}", "line 1 loops over range(count()): count() is computed"),
        (FOLDS, "each iteration of line 1 is a training with its own epochs"),
    ],
)
def test_epochs_that_cannot_be_given_are_refused_with_the_reason(source: str, why: str) -> None:
    definition = parse(source)
    check_options(definition, configured(definition, Config()))
    with pytest.raises(InvalidDefinition) as refused:
        check_options(definition, Config(epochs=7))
    assert refused.value.message.startswith(f"--epochs 7 cannot be given to this program: {why}. Write")
    assert configured(definition, Config()).known_epochs is None  # no view says `epoch 1/1`


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"batch_size": 64},
            "--batch-size is for definitions of functions, and the program's own loop takes",
        ),
        ({"amp": "bf16"}, "--amp is for"),
        ({"seed": 3}, "torch.manual_seed"),
        ({"patience": 2}, "break where the loop is to end"),
    ],
)
def test_options_that_the_program_decides_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        check_options(parse(f"EPOCHS = 5\n{LOOP}"), Config(epochs=5, **given))
    assert message in refused.value.message
