"""Test commands: programs, placeholders and values, and the errors for invalid ones."""

from __future__ import annotations

import ast
import sys

import pytest

from kernel_backend.definition.binding import bind_space, configured
from kernel_backend.definition.command.programs import program_of, split_words
from kernel_backend.definition.command_line import Command, command_of, joined, marked
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition, InvalidRequest
from kernel_backend.model.experiment import Config
from kernel_backend.spec.assignments import parse_line


@pytest.mark.parametrize(
    ("line", "words", "kind", "at"),
    [
        ("python train.py --lr {lr}", "python train.py --lr {lr}", "python", 1),
        ("python3 -u -W ignore train.py -m x", "python -u -W ignore train.py -m x", "python", 4),
        ("train.py", "python train.py", "python", 1),
        ("python -m pkg.train --lr 1", "python -m pkg.train --lr 1", "module", 2),
        ("--module pkg.train", "python -m pkg.train", "module", 2),
        ("python -c print(1)", "python -c print(1)", "executable", None),
        ("bash -e run.sh a", "bash -e run.sh a", "shell", 2),
        ("bash -ec true", "bash -ec true", "shell", None),
        ("./run --lr {lr}", "./run --lr {lr}", "executable", 0),
        ("/venv/bin/python -u train.py", "/venv/bin/python -u train.py", "python", 2),
        (".venv/bin/python3.12 -m pkg.train", ".venv/bin/python3.12 -m pkg.train", "module", 2),
        ("/venv/bin/python -m torch.distributed.run --nnodes 1 a.py", "/venv/bin/python a.py", "python", 1),
        (f"python3.{sys.version_info.minor} train.py", "python train.py", "python", 1),
        ("python3.1 train.py", "python3.1 train.py", "python", 1),
        ("torchrun --nproc_per_node 2 train.py a", "python train.py a", "python", 1),
        ("torchrun --nproc_per_node=2 -m pkg.train", "python -m pkg.train", "module", 2),
        ("python -m torch.distributed.run --nnodes 1 train.py", "python train.py", "python", 1),
        ("accelerate launch --num_processes 2 train.py", "python train.py", "python", 1),
        ("A=1 python train.py", "env A=1 python train.py", "executable", 0),
        ("horovodrun -np 2 python train.py", "python train.py", "python", 1),
    ],
)
def test_the_program_of_a_command(line: str, words: str, kind: str, at: int | None) -> None:
    program = program_of(line.split())
    assert (" ".join(program.words), program.kind, program.at) == (words, kind, at)


def test_the_words_of_a_launcher_are_told() -> None:
    assert program_of(["torchrun", "--nproc_per_node", "2", "train.py"]).dropped == (
        "torchrun",
        "--nproc_per_node",
        "2",
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "nothing follows --"),
        ("python train.py > log.txt", "> is for a shell, .* write -- bash -c 'python train.py > log.txt'"),
        ("python train.py 2>&1", "2>&1 is for a shell"),
        ("python train.py | tee log", r"\| is for a shell"),
        ("CUDA_VISIBLE_DEVICES=0 python train.py", "its own devices: leave it out, and write --slots N"),
        ("mpirun -np 4 ./solver", "name a Python program"),
        ("python -u", "names no program"),
    ],
)
def test_a_command_without_a_program_is_refused(line: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        program_of(line.split())


def test_only_the_first_separator_ends_the_options() -> None:
    assert split_words(["--slots", "2", "--", "bash", "--", "x"]) == (["--slots", "2"], ["bash", "--", "x"])
    assert split_words(["train.py"]) == (["train.py"], None)


def test_values_are_filled_in_and_other_braces_stay() -> None:
    command = Command(words=("run", "lr={lr}", "{{lr}}", '{"a": {"b": 1}}', "${HOME}", "{checkpoints}/x", "{on}"))
    assert command.names == ("lr", "on")
    filled = command.filled({"lr": 1e-3, "on": True}, "/kept")
    assert filled == ["run", "lr=0.001", "{lr}", '{"a": {"b": 1}}', "${HOME}", "/kept/x", "True"]


def test_a_definition_keeps_its_command_below_the_program() -> None:
    command = Command(words=("python", "a b.py", "{lr}"), at=1, program="src/a b.py")
    source = marked("import torch\nx = 1\n", command)
    assert source.startswith("import torch\nx = 1\n")
    assert command_of(ast.parse(source)) == command
    definition = parse(source)
    assert definition.form == "command"
    assert definition.summary == "command: python 'a b.py' {lr}"
    assert list(definition.hyperparameters) == ["lr"]
    assert configured(definition, Config()).form == "command"


def test_a_module_that_assigns_something_else_is_no_command() -> None:
    assert command_of(ast.parse("__dlcommand__ = 3")) is None
    assert command_of(ast.parse("__dlcommand__ = {'words': 3}")) is None
    assert command_of(ast.parse("")) is None


def bind(*words: str) -> object:
    definition = parse(marked("", Command(words=("python", "train.py", "--lr={learning_rate}", "{depth}"))))
    line = parse_line(words)
    return bind_space(definition, line.given, line.space).params


def test_each_placeholder_needs_a_value_and_each_value_a_placeholder() -> None:
    assert bind("learning_rate=0.1", "depth=a") == {"learning_rate": 0.1, "depth": "a"}
    with pytest.raises(InvalidDefinition) as refused:
        bind("learning_rat=0.1", "depth=3")
    assert "learning_rat has no place in the command (did you mean learning_rate?)" in refused.value.message
    assert "{learning_rate} of the command has no value" in refused.value.message


def test_a_searched_placeholder_needs_no_value() -> None:
    assert bind("learning_rate=0.1..1", "depth=1,2") == {}


def test_options_of_our_own_loop_are_refused() -> None:
    definition = parse(marked("", Command(words=("true",))))
    with pytest.raises(InvalidDefinition, match=r"--amp .* use an option of the program"):
        check_options(definition, Config(form="command", amp="bf16"))
    with pytest.raises(InvalidDefinition, match="form=functions"):
        check_options(definition, Config())
    check_options(definition, Config(form="command", slots=2, epochs=9))


def test_a_pattern_of_the_log_is_for_commands() -> None:
    cell = "def model(): ...\ndef train_data(): ...\ndef loss(output, target): ..."
    with pytest.raises(InvalidDefinition, match="--metric-pattern"):
        check_options(parse(cell), Config(metric_pattern=("(?P<loss>.*)",)))


def test_words_are_joined_as_a_shell_reads_them() -> None:
    assert joined(["a", "b c", "it's", "--x={y}", ""]) == """a 'b c' 'it'"'"'s' --x={y} ''"""
