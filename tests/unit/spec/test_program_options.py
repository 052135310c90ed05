"""Test that options behind a program's file are the program's own where it declares them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.spec.option_parser import OptionParser, add_options
from kernel_backend.spec.program_options import take_apart

PROGRAM = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", "-l", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--seed", type=int)
parser.add_argument("--device", default="cpu")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--sizes", nargs="+", type=int)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "roles.py").write_text(f"{PROGRAM}def model(): ...\ndef train_data(): ...\ndef loss(output): ...\n")
    return tmp_path


def apart(line: str) -> tuple[str, str | None]:
    parser = OptionParser(prog="%dlsubmit", add_help=False)
    add_options(parser, "notebook")
    own, program = take_apart(line.split(), parser)
    return " ".join(own), None if program is None else " ".join(program)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "own", "program"),
    [
        ("train.py --epochs 3 --lr 0.01", "", "train.py --epochs 3 --lr 0.01"),
        ("--slots 2 train.py --lr=0.01 --wait width=3", "--slots 2 --wait width=3", "train.py --lr=0.01"),
        ("train.py -l -0.5 --quick --slots 2", "--slots 2", "train.py -l -0.5 --quick"),
        ("train.py --sizes 1 2 lr=0.1", "lr=0.1", "train.py --sizes 1 2"),
        ("train.py --seed 3", "", "train.py --seed 3"),  # a program seeds itself
        ("--slots 2 python train.py --epochs 3", "--slots 2", "python train.py --epochs 3"),
        ("torchrun train.py", "", "torchrun train.py"),
        ("--include other.py train.py --lr 1", "--include other.py", "train.py --lr 1"),
    ],
)
def test_what_the_program_declares_is_its_own(line: str, own: str, program: str):
    assert apart(line) == (own, program)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line",
    [
        "train.py --epochs 3",
        "train.py --other 3",
        "--device cpu train.py",
        "missing.py --lr 3",
        "roles.py --lr 3",
        "lr=1",
    ],
)
def test_a_line_without_options_of_the_program_stays_as_it_is(line: str):
    assert apart(line) == (line, None)


@pytest.mark.usefixtures("folder")
def test_an_option_that_both_have_is_told_with_both_lines():
    with pytest.raises(InvalidRequest) as refused:
        apart("train.py --device cuda --lr 0.1")
    assert refused.value.message == (
        "--device is an option of Daylight and of train.py: write --device cuda train.py for Daylight's, or "
        "-- python train.py --device cuda for the program's"
    )
