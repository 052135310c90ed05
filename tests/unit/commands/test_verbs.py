"""Test that command line, `%dl`, job object and client have all verbs of the table."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import get_args

import pytest

from jupyter_ext.job.job import Job
from jupyter_ext.magics import render as cell
from jupyter_ext.magics.commands import VERBS as IN_A_CELL
from jupyter_ext.magics.commands import run_command
from jupyter_ext.values.awaited import AwaitedValues
from kernel_backend.cli import render as terminal
from kernel_backend.cli import verbs
from kernel_backend.client import Client
from kernel_backend.commands.answer import Shown
from kernel_backend.commands.complete import complete
from kernel_backend.commands.register.verbs import parse_period
from kernel_backend.commands.table import VERBS
from kernel_backend.errors import InvalidRequest

ALL = verbs().values()


def test_the_client_and_the_job_have_the_methods_that_the_table_names():
    assert [name for verb in ALL for name in verb.client if not callable(getattr(Client, name, None))] == []
    assert [name for verb in ALL for name in verb.job if not hasattr(Job, name)] == []


def test_every_verb_of_the_table_is_on_the_client():
    assert [name for name, verb in VERBS.items() if not verb.client] == []


@pytest.mark.parametrize("host", ["terminal", "notebook"])
def test_every_example_is_understood(host: str):
    program = "daylight" if host == "terminal" else "%dl"
    examples = [(verb, each) for verb in ALL if verb.host in ("both", host) for each in verb.examples_for(host)]
    assert len(examples) > 50
    for verb, example in examples:
        name, *tokens = shlex.split(example.partition(" | ")[0].partition(" > ")[0])
        assert name == verb.name, example
        assert verb.parse(tokens, host).command == f"{program} {name}", example


def test_both_programs_have_the_verbs_of_the_table():
    assert set(VERBS) <= set(verbs())
    assert [name for name in VERBS if name not in IN_A_CELL] == ["top", "audit"]


def test_every_kind_of_answer_is_rendered_in_a_terminal_and_in_a_cell():
    assert set(terminal._RENDERERS) == set(cell._RENDERERS) == set(get_args(Shown))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("resume 67 lr=1e-3", "%dl continue 67 lr=1e-3 --epochs N to train on with others, %dl rerun 67 lr=1e-3 to"),
        ("resume 12 13", "%dl resume takes one experiment: write %dl resume 12"),
    ],
)
def test_values_for_a_resumed_experiment_are_answered_with_the_lines_that_set_them(line: str, says: str):
    with pytest.raises(InvalidRequest) as refused:
        run_command(line.split(), AwaitedValues({}))
    assert says in refused.value.message


def test_an_optional_word_may_stand_behind_an_option():
    for tokens in (["12", "--dry-run"], ["--dry-run", "12"]):
        assert VERBS["gc"].parse(tokens, "terminal").reference.experiment == 12


def test_the_help_of_a_cell_tells_all_about_a_verb(capsys: pytest.CaptureFixture[str]):
    run_command(["logs", "--help"], AwaitedValues({}))
    text = capsys.readouterr().out
    run_command(["help", "logs"], AwaitedValues({}))
    assert capsys.readouterr().out == text
    assert "usage: %dl logs" in text
    assert "--follow" not in text  # in a terminal alone


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pru", ["prune"]),
        ("help pru", ["prune"]),
        ("prune ", ["12", "7"]),
        ("prune 1", ["12"]),
        ("logs 12 --ra", ["--rank"]),
        ("logs 12 --rank ", []),
        ("metrics 12 --kind v", ["validation"]),
        ("list --state p", ["paused"]),
        ("nothing ", []),
    ],
)
def test_a_line_is_completed(line: str, found: list[str]):
    values = {"experiment": ["12", "7"], "trial": ["12", "7"], "state": ["paused", "failed"]}
    *words, word = line.split(" ")
    assert complete(IN_A_CELL, words, word, "notebook", lambda kind: values.get(kind, [])) == found


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_a_date_is_a_day_of_the_local_time_and_a_time_an_instant() -> None:
    lengths = {day: parse_period(f"2026-{day}") for day in ("09-01", "03-29", "10-25")}  # with changes of the clock
    assert [(each.until - each.since) / 3600 for each in lengths.values()] == [24, 23, 25]
    since, until = parse_period("2026-09-01 14:30")
    assert since == until == parse_period("2026-09-01T12:30+00:00").since == lengths["09-01"].since + 14.5 * 3600
    for text in ("gestern", "", "2026-13-01", "2026-09-01 25:00", "9999-12-31", "0001-01-01"):
        with pytest.raises(InvalidRequest, match=r"--at .*: write a date such as 2026-09-01"):
            parse_period(text)
