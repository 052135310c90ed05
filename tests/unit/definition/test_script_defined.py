"""Test which statements of a cell with a training loop its notebook runs."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.script.defined import defined_only, definitions

LOOP = "for epoch in range(3):\n    train()\n"


def kept(cell: str) -> str:
    """Return the lines of a cell that its notebook runs."""
    return "\n".join(filter(None, defined_only(cell.split("\n"), ast.parse(cell))))


@pytest.mark.parametrize(
    ("first", "change"),
    [
        ("best = 999.0", "best = loss"),
        ("best: float = 999.0", "best = loss"),
        ("iters = 0", "iters += 1"),
        ("best, at = 9.0, -1", "if loss < best:\n        best, at = loss, epoch"),
        ("history = {'loss': [0.5]}", "history['loss'].append(loss)"),
        ("seen = [0]", "seen[0] = loss"),
        ("seen = [0]", "with once():\n        seen.extend([loss])"),
        ("last = None", "for last in data:\n        pass"),
        ("a, b = [], []", "pass"),
        ("history = {'loss': []}", "pass"),
        ("config = {'inner': {'sizes': []}}", "pass"),
    ],
)
def test_a_first_value_that_the_training_changes_is_left_to_the_job(first: str, change: str) -> None:
    assert kept(f"lr = 0.1\n{first}\n{LOOP}    {change}\n") == "lr = 0.1"


def test_a_constant_that_a_function_of_the_cell_counts_is_left_to_the_job() -> None:
    function = "def step():\n    global done\n    done += 1"
    assert kept(f"done, lr = 0, 1\nwidth = 3\n{function}\n{LOOP}    step()\n") == f"width = 3\n{function}"


@pytest.mark.parametrize(
    "cell",
    [
        "classes = ['a', 'b']\nsizes = (1, 2)\nname = 'net'\n",
        "lr = 0.1\ndef f(x=lr):\n    return x\n",
    ],
)
def test_constants_that_nothing_changes_stay(cell: str) -> None:
    assert kept(f"{cell}{LOOP}    print(classes.index('a'), name.upper(), [n for n in sizes])\n") == cell.rstrip("\n")


def test_a_constant_below_the_training_stays() -> None:
    assert kept(f"{LOOP}epoch = 0\n") == "epoch = 0"


def test_a_constant_that_a_definition_reads_at_once_stays() -> None:
    cell = "lr = 0.1\nclass Net:\n    rate = lr"
    assert kept(f"{cell}\n{LOOP}    lr *= 0.5\n") == cell


def test_the_definitions_of_a_loaded_model_have_all_constants() -> None:
    tree = definitions(ast.parse(f"lr = 0.1\nlosses = []\n{LOOP}    lr *= 0.5\n"))
    assert ast.unparse(tree) == "lr = 0.1"


@pytest.mark.parametrize(
    "program",
    [
        "models = {}\ndef register(f):\n    models[f.__name__] = f\n    return f\n@register\ndef small(): ...",
        "registry = Registry('models')\n@registry.register\nclass Net: ...",
        "device = find()\ndef evaluate(net, device=device): ...",
        "kinds = {}\nBase = made(kinds)\nclass Net(Base): ...",
    ],
)
def test_the_definitions_of_a_loaded_model_have_what_these_need_at_once(program: str) -> None:
    tree = definitions(ast.parse(f"data = read()\n{program}\nnet = small(data)\n{LOOP}"))
    assert ast.unparse(tree) == ast.unparse(ast.parse(program))


def test_no_statement_that_trains_is_among_definitions() -> None:
    tree = definitions(ast.parse("def fit():\n    loss().backward()\nbest = fit()\ndef show(score=best): ..."))
    assert [type(each).__name__ for each in tree.body] == ["FunctionDef", "FunctionDef"]
