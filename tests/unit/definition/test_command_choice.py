"""Test when Daylight runs a program's training loop itself, and when the program needs its own processes."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.command_line import Command, marked
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config

LOOP = "import torch\nfor epoch in range(3):\n    loss.backward()\n"
TRAIN = Command(words=("python", "train.py"), at=1, program="train.py", taken=True)


def chosen(program: str, command: Command = TRAIN, **modules: str) -> str:
    trees = {name: ast.parse(source) for name, source in modules.items()}
    return parse(marked(program, command), modules=trees).summary


@pytest.mark.parametrize(
    ("program", "summary"),
    [
        (LOOP, "script: steps in line 2"),
        (f"def train(run, x):\n    pass\n{LOOP}", "script: steps in line 4"),
        ("print(1)", "command: no training loop is recognised in it"),
        (f"{LOOP}torch.distributed.init_process_group()", "command: the program wires its ranks itself in line 4"),
        (f"import horovod.torch as hvd\n{LOOP}", "command: the program wires its ranks itself in line 1"),
        (f"from accelerate import Accelerator\n{LOOP}", "command: the program wires its ranks itself in line 1"),
        (
            f"{LOOP}from daylight import run\nrun.checkpoint()",
            "command: the program saves checkpoints of its own in line 5",
        ),
        (
            f"{LOOP}os.environ['DAYLIGHT_CHECKPOINTS']",
            "command: the program saves checkpoints of its own in line 4",
        ),
        (LOOP.replace("torch", "paddle"), "command: it trains with paddle"),
        (
            f"{LOOP}from transformers import Trainer\ntrainer = Trainer(model=net, args=a)\ntrainer.train()",
            "command: a framework's Trainer takes its steps",
        ),
    ],
)
def test_the_choice_and_its_reason(program: str, summary: str) -> None:
    assert chosen(program) == summary


def test_a_loop_in_a_module_is_taken_and_the_program_is_no_module_of_itself() -> None:
    program = "from net import fit\nimport torch\nfit()\n"
    assert chosen(program, net=f"def fit():\n    {LOOP.splitlines()[1]}\n        loss.backward()") == (
        "script: steps in line 2 of net"
    )
    assert chosen(LOOP, train=LOOP) == "script: steps in line 2"


def test_commands_of_earlier_snapshots_stay_commands() -> None:
    assert chosen(LOOP, Command(words=("python", "train.py"), at=1)) == "command: python train.py"


def test_options_that_a_program_has_itself_name_the_way_out() -> None:
    definition = parse(marked(LOOP, TRAIN))
    with pytest.raises(InvalidDefinition, match=r"--seed .* With --form command"):
        check_options(definition, Config(seed=3, epochs=3))
    check_options(definition, Config(slots=2, epochs=3))
