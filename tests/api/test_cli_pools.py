"""Test `daylight pool`, and `%dl pool` in a cell, against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend.cli import main
from tests.api.served import Served

Said = Callable[..., str]
ADD = ("pool", "add", "second", "--engine", "slurm")


@pytest.fixture
def said(service: Served, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command line, assert its exit code, and return what it printed."""

    def run(*line: str, code: int = 0) -> str:
        assert main(list(line)) == code
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return run


def test_a_pool_is_added_listed_and_removed_as_it_says(said: Said):
    assert said(*ADD, "--partition", "a100", "--gpus", "no", "--extra=--reservation=course").splitlines() == [
        "pool second: added, engine slurm, partition a100, gpus no, extra --reservation=course",
        "to train there: %%dlsubmit --pool second",
    ]
    head, local, second = (row.split() for row in said("pool").splitlines())
    assert head == ["pool", "engine", "where", "nodes", "slots", "in", "use", "kind", "waiting", "state"]
    assert (local[:2], local[-1]) == (["local", "local"], "ready")
    assert (second[:4], second[-6:]) == (["second", "slurm", "a100", "1"], ["0", "of", "2", "cpu", "0", "ready"])
    out = said("pool", "remove", "second").splitlines()
    assert out[0] == "pool second: removed; what has been trained there stays"
    again = out[1].removeprefix("to take it back: daylight ").split()
    assert again == [*ADD, "--partition", "a100", "--gpus", "no", "--extra=--reservation=course"]
    assert said(*again).startswith("pool second: added, engine slurm, partition a100, gpus no")


def test_adding_a_pool_again_says_what_changed(said: Said):
    said(*ADD, "--partition", "v100", "--cpus-per-slot", "4")
    again = said(*ADD, "--partition", "a100").splitlines()[0]
    assert again == "pool second: partition v100 -> a100, cpus_per_slot 4 -> default"
    assert said(*ADD, "--partition", "a100").splitlines()[0] == "pool second: as before"
    changed = json.loads(said(*ADD, "--most-waiting", "3", "--json"))
    assert (changed["before"]["settings"]["most_waiting"], changed["after"]["settings"]["most_waiting"]) == (20, 3)
    assert [each["name"] for each in json.loads(said("pool", "list", "--json"))["pools"]] == ["local", "second"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (("pool", "ad", "gpu"), r"daylight pool has no ad (did you mean add?): list, add or remove"),
        (("pool", "add"), "daylight pool add takes one name: write daylight pool add gpu"),
        (("pool", "add", "gpu"), "which engine runs the gangs of pool gpu? write daylight pool add gpu --engine slurm"),
        (("pool", "add", "gpu", "--engine", "slrm"), "engine: Input should be 'slurm' or 'kubernetes', not 'slrm'"),
        ((*ADD, "--cpus-per-slot", "0"), "cpus_per_slot: Input should be greater than or equal to 1, not '0'"),
        ((*ADD, "--extra=reservation"), "'reservation' is no option of sbatch: write it as --name=value"),
        (("pool", "add", "local", "--engine", "slurm"), "name: that is the machine of the service itself"),
        (("pool", "list", "gpu"), "daylight pool list takes no 'gpu'"),
        (("pool", "--partition", "a100"), "--partition is an option of daylight pool add NAME"),
        (("pool", "remove", "gpu"), "there is no pool gpu; there are local"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(said: Said, line: tuple[str, ...], what: str):
    assert what in said(*line, code=2)


def test_a_cell_has_the_same_verb(service: Served, capsys: pytest.CaptureFixture[str]):
    run_command(["pool", "add", "second", "--engine", "slurm", "--partition", "a100"], AwaitedValues({}))
    assert "pool second: added, engine slurm, partition a100" in capsys.readouterr().out
    run_command(["pool", "remove", "second"], AwaitedValues({}))
    assert "to take it back: %dl pool add second --engine slurm --partition a100" in capsys.readouterr().out
