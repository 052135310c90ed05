"""Test that arguments of a program set its options, and that hyperparameters are written back into them."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.binding import bind_space, configured, with_epochs
from kernel_backend.definition.command_line import Command, marked
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.definition.script.definition import with_values
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Search
from kernel_backend.spec.assignments import parse_line

PROGRAM = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("data", nargs="?")
parser.add_argument("--learning-rate", "-l", type=float, default=0.01)
parser.add_argument("--epochs", "-e", type=int, default=3)
parser.add_argument("--opt", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--fast", action="store_true")
parser.add_argument("--layers", nargs="+", type=int)
parser.add_argument("--lay", default="out")
parser.add_argument("--clip", type=float)
parser.add_argument("--shape", type=eval, default=4)
parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True)
args = parser.parse_args()
width = 8
for epoch in range(args.epochs):
    loss.backward()
"""


def source(*words: str) -> str:
    return marked(PROGRAM, Command(words=("python", "train.py", *words), at=1, program="train.py", taken=True))


def ran(text: str, params: dict[str, Value], epochs: int) -> tuple[list[str], dict[str, Value], Value]:
    """Return the arguments of a trial, and the values that the program gets from them."""
    written = with_values(ast.parse(text), {}, params, epochs)
    names: dict[str, Value] = {}
    body = ast.unparse(written.tree).replace("parse_args()", f"parse_args({written.arguments!r})")
    exec(body[: body.index("for epoch")], names)
    return written.arguments, vars(names["args"]), names["width"]


def submitted(*words: str, given: str = "", **settings: int) -> tuple[list[str], dict[str, Value]]:
    """Return the arguments and the parsed options of a trial submitted by this line."""
    definition = parse(source(*words))
    config, values = with_epochs(definition, Config.model_validate(settings), parse_line(given.split()).given)
    params = bind_space(definition, values, parse_line([]).space).params
    arguments, options, _ = ran(source(*words), params, configured(definition, config).epochs)
    return arguments, options


@pytest.mark.parametrize(
    ("words", "given", "arguments", "options"),
    [
        ("", "", "", {"learning_rate": 0.01, "epochs": 3}),
        ("d.csv --learning-rate 0.1", "", "d.csv --learning-rate 0.1", {"data": "d.csv", "learning_rate": 0.1}),
        ("--learning-rate=0.1", "learning_rate=0.5", "--learning-rate=0.5", {"learning_rate": 0.5}),
        ("--learn 0.1", "learning_rate=0.5", "--learn 0.5", {"learning_rate": 0.5}),
        ("-l0.1 -e 7", "learning_rate=0.5", "-l0.5 -e 7", {"learning_rate": 0.5, "epochs": 7}),
        ("-l {lr}", "lr=0.5", "-l 0.5", {"learning_rate": 0.5}),
        ("-l -0.5", "learning_rate=-1.5", "-l -1.5", {"learning_rate": -1.5}),
        ("--opt adam", "", "--opt adam", {"opt": "adam"}),
        ("--opt {opt} --lay runs/{opt}", "opt=adam", "--opt adam --lay runs/adam", {"opt": "adam", "lay": "runs/adam"}),
        ("--fast", "fast=False", "", {"fast": False}),
        ("--fast --opt adam", "", "--fast --opt adam", {"fast": True}),
        ("--opt adam", "fast=True", "--opt adam", {"fast": True}),
        ("--no-amp", "", "--no-amp", {"amp": False}),
        ("--no-amp", "amp=True", "", {"amp": True}),
        ("--clip 2", "clip=None", "", {"clip": None}),
        ("--layers 4 5 --lay a", "", "--layers 4 5 --lay a", {"layers": [4, 5], "lay": "a"}),
        ("--epochs {n} --lay {n}", "n=9", "--epochs 9 --lay 9", {"epochs": 9, "lay": "9"}),
        ("--epochs 5", "epochs=9", "--epochs 9", {"epochs": 9}),
        ("-l 0.1 -l 0.2", "learning_rate=0.3", "-l 0.1 -l 0.3", {"learning_rate": 0.3}),
    ],
)
def test_words_give_values_and_values_are_written_back(
    words: str, given: str, arguments: str, options: dict[str, Value]
) -> None:
    found, parsed = submitted(*words.split(), given=given)
    assert found == arguments.split()
    assert options.items() <= parsed.items()


def test_words_with_spaces_and_quotes_stay_whole() -> None:
    arguments, options = submitted("--lay", """it's "a" b""", given="learning_rate=0.5")
    assert arguments == ["--lay", """it's "a" b"""]
    assert (options["lay"], options["learning_rate"]) == ("""it's "a" b""", 0.5)


def test_other_constants_are_hyperparameters_too() -> None:
    definition = parse(source("--learning-rate", "{lr}"))
    assert {name: each.default for name, each in definition.hyperparameters.items()} == {
        "lr": None, "opt": "sgd", "fast": False, "lay": "out", "clip": None, "shape": 4, "amp": True, "width": 8,
    }  # fmt: skip
    assert ran(source("-l", "{lr}"), {"lr": 0.1, "width": 16}, 3)[2] == 16


def test_the_number_of_epochs_is_that_of_the_words() -> None:
    assert configured(parse(source("-e", "7")), Config()).epochs == 7
    assert submitted("-e", "7", epochs=2)[0] == ["-e", "2"]
    definition = parse(source("--epochs", "{n}"))
    with pytest.raises(InvalidDefinition, match="n has no value: write n=N"):
        with_epochs(definition, Config(), {})
    search = Search(method="asha")
    check_options(definition, Config(epochs=9, search=search))


@pytest.mark.parametrize(
    ("words", "given", "says"),
    [
        ("-l {lr}", "", "{lr} of the command has no value: write lr=VALUE before the --"),
        ("-l {lr}", "lr=a", "lr (line 5) takes a number"),
        ("-l {lr}", "lr=1 learning_rate=2", "learning_rate is {lr} in the command: write lr=VALUE"),
        ("--opt {opt}", "opt=adan", "opt (line 7) takes one of 'sgd', 'adam'"),
        ("--shape 5", "shape=6", "shape is --shape 5 in the command: write {shape} there"),
        ("--lay a/{lr}", "lr=1 lay=b", "lay is --lay a/{lr} in the command"),
        ("", "widht=3", "widht is no hyperparameter (did you mean width?)"),
    ],
)
def test_wrong_values_are_told(words: str, given: str, says: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        submitted(*words.split(), given=given)
    assert says in refused.value.message
