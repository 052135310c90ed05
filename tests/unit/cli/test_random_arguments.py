"""Test that any input is executed or refused with a message, and never causes a traceback."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from traitlets import TraitError

from jupyter_ext.magics.line import words
from jupyter_ext.submit.submit import read
from kernel_backend.app import Daylight
from kernel_backend.cli import main, verbs
from kernel_backend.errors import DaylightError
from kernel_backend.model.cluster.quota_settings import read_changes
from kernel_backend.model.experiment import Submission
from kernel_backend.spec.assignments import parse_line
from kernel_backend.spec.options import OPTIONS
from tests.support.builders import parse_options

DEFINITION = """
def model(width=8, act="relu"): ...
def train_data(): ...
def validation_data(): ...
def loss(z=1.0, lr: float = 0.1): ...
"""
LONG = 5000
# What parsers stumble over, beside what nobody thought of.
ODD = st.sampled_from(
    [
        *(
            "",
            "-",
            "--",
            "---",
            "=",
            "==",
            "..",
            "1..",
            "..1",
            ":",
            "@",
            "@each",
            "@a=",
            ",",
            ",,",
            "'",
            '"',
            "{}",
            "{",
            "[]",
        ),
        *(
            "nan",
            "inf",
            "-inf",
            "1e400",
            "-1e400",
            "10**400",
            "2**63",
            "-2**63-1",
            "9" * LONG,
            "9" * 400,
            "0",
            "-1",
            "-0.0",
        ),
        *(
            "²",
            "١",
            "1_000",
            "0x10",
            "1e",
            "1j",
            "True",
            "none",
            "a" * 256,
            "\udcff",
            "\0",
            "\x1b[2J",
            "\n",
            "é",
            "{'float': 'inf'}",
        ),
        *("[" * LONG, "(" * 150, "-" * LONG + "1", "[" * 90 + "]" * 90, "not " * LONG, "{" * 99, "{[]:1}", "lambda: 0"),
        *(
            "1..2:log:0",
            "1..2:log2:99999999999",
            "1..2**70",
            "0..1e308",
            "-1e308..1e308",
            "1..1e-300:log",
            "a,b,a",
            "nan,1",
            "1,True",
        ),
        *(
            "9" * 400 + "h",
            "1e9GB",
            "best:1",
            "best:²",
            "12.7",
            "#1",
            "1.2.3",
            "1.5epochs",
            "9" * 400 + "steps",
            "x{99999999999}",
        ),
    ]
)
VALUES = (
    ODD
    | st.text(max_size=12)
    | st.from_regex(r"-?[0-9.e]{1,9}(\.\.-?[0-9.e]{1,9})?(:log2?)?(:\d{1,3})?", fullmatch=True)
)
FLAGS = st.sampled_from(
    [option.flags[0] for option in OPTIONS if option.flags[0] not in ("--json",)] + ["--nothing", "-x"]
)
NAMES = st.sampled_from(["lr", "z", "width", "act", "block.kind", "blocks", "class", "2x", "a.b.c", ""])
HUNG = st.sampled_from(["", "", "", "@each", "@z=1", "@act=relu", "@lr=0.1,0.2"])
TOKENS = (
    VALUES
    | FLAGS
    | st.tuples(FLAGS, VALUES).map("=".join)
    | st.tuples(NAMES, VALUES).map("=".join)
    | st.builds(lambda name, value, hung: f"{name}={value}{hung}", NAMES, VALUES, HUNG)
)
LINES = st.lists(TOKENS, max_size=6) | st.lists(st.tuples(FLAGS, VALUES), max_size=3).map(
    lambda pairs: [each for pair in pairs for each in pair]
)


@given(LINES)
@example(["--warm=--"])
@example(["--on-log", "x{99999999999}", "cancel_retries"])
@example(["--keep", "latest:" + "9" * LONG])
@example(["--search-option", "0="])
def test_a_line_of_options_and_values_is_read_or_refused(tokens: list[str]):
    with contextlib.suppress(DaylightError):
        asked = read(parse_options(tokens, "terminal"))
        if not asked.wrong:
            Submission(snapshot="0" * 64, config=asked.config, params=asked.given, space=asked.space, python="", cwd="")


@given(st.lists(TOKENS, max_size=4).map(" ".join) | st.text(max_size=40))
@example("{[]: 1}")
@example("{" + "(" * LONG + "}")
def test_the_line_of_a_magic_is_split_or_refused(line: str):
    with contextlib.suppress(DaylightError):
        words(line, {"rate": 0.1})


@given(st.lists(st.builds(lambda name, value, hung: f"{name}={value}{hung}", NAMES, VALUES, HUNG), max_size=5))
def test_what_is_read_is_sent_and_arrives_as_it_was(tokens: list[str]):
    with contextlib.suppress(DaylightError):
        line = parse_line(tokens)
        sent = Submission(snapshot="0" * 64, params=line.given, space=line.space, python="", cwd="")
        assert repr(Submission.model_validate_json(sent.model_dump_json())) == repr(sent)


@pytest.mark.parametrize("name", sorted(verbs()))
@settings(max_examples=30)
@given(tokens=st.lists(VALUES | FLAGS | st.tuples(FLAGS, VALUES).map("=".join), max_size=4))
@example(tokens=["1", "--limit", "9" * LONG])
@example(tokens=["1", "--slots", "9" * LONG])
def test_the_words_of_a_verb_are_read_or_refused(name: str, tokens: list[str]):
    with contextlib.suppress(DaylightError):
        verbs()[name].parser().parse_mixed(tokens)


@given(
    st.dictionaries(
        st.sampled_from(["limit", "weight", "slot_hours", "priority", "x"]), VALUES | st.floats() | st.integers()
    )
)
def test_the_numbers_of_a_quota_are_read_or_refused(changes: dict[str, object]):
    with contextlib.suppress(DaylightError):
        read_changes(changes)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(DEFINITION)
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epochs", "10000000000000000000"], "--epochs 10000000000000000000: must be at most 1,000,000,000"),
        (["--steps", "1000000001"], "--steps 1000000001: must be at most 1,000,000,000"),
        (["--clip", "inf"], "--clip inf: must be at most 1e+30"),
        (["--max-time", "9" * 400 + "h"], "must be at most 876000h"),
        (["--search", "asha", "--max-time", "876001h", "lr=0..1"], "--max-time 876001h: must be at most 876000h"),
        (
            ["--checkpoint-every", "2000000000steps"],
            "--checkpoint-every 2000000000steps: must be at most 1,000,000,000",
        ),
        (["--search", "asha", "--trials", "9" * 30, "lr=0..1"], "must be at most 1,000,000"),
        (["--search", "pbt", "--interval", "1", "--steps", "1000000", "lr=0..1"], "--interval 1: must be at least 100"),
        (["width=2**63"], "does not fit into 64 bits"),
        (["width=10**400"], "64 bits"),
        (["lr=1e400"], "write inf if that is meant"),
        (["lr=[1,1e400]"], "write inf if that is meant"),
        (["--search", "random", "lr=0.1,1e400"], "write inf if that is meant"),
        (["--search", "random", "lr=0.1,nan"], "nan is no value to choose"),
        (["--search", "random", "lr=0..inf"], "is no range: write two numbers"),
        (["act={'float':'inf'}"], "means the number inf"),
        (["act=" + "[" * 40 + "]" * 40], "32 deep at most"),
        (["act=\udcff"], "is no UTF-8 text"),
        (["a" * 256], "takes one file, not 2"),
        (["a" * 300 + "=1"], "is no hyperparameter"),
        (["--name", "a" * 201], "it has 201 characters; write 200 at most"),
        (["--warm=--"], "--warm=--: -- is no value"),
        (["--project-limit", "9" * 400 + "GB"], "more than any disk holds"),
        (["--search", "grid", "width=1..40000000"], "more than 100,000 points"),
    ],
)
def test_what_cannot_be_is_refused_with_its_bound(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["submit", str(file), "--dry-run", *words]) == 2
    assert said in capsys.readouterr().err


def test_long_trainings_are_foretold_as_quickly_as_short_ones(file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["submit", str(file), "--dry-run", "--search", "hyperband", "--steps", "20000", "lr=0..1"]) == 0
    assert "of 378 whole trainings" in capsys.readouterr().out


def test_no_service_offers_more_slots_than_a_machine_can_have():
    with pytest.raises(TraitError, match="should not be greater than 65536"):
        Daylight(slots=10**20)
