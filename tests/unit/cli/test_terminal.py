"""Test that names and output of other users cannot control a terminal."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path

import pytest

import jupyter_ext
import kernel_backend.cli
from jupyter_ext.views.tables import table
from kernel_backend.cli.output import print_table, say, tell
from kernel_backend.errors import NotFound
from kernel_backend.printable import harmless, harmless_log
from kernel_backend.text.terminal import hand_over

CLEAR = "\x1b[2J\x1b]0;owned\x07"  # clears the screen, and sets the window's title


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_steers_a_terminal_is_shown_and_not_obeyed(capsys):
    tell(f"#12 {CLEAR}resnet\r\nrunning")
    say(f"note: {CLEAR}")
    print_table(["name", f"acc{CLEAR}"], [[f"a{CLEAR}\nb\u202edab", "1"]], "none")
    out, err = capsys.readouterr()
    assert not set(out + err) & set("\x1b\x07\r\u202e")
    assert r"\x1b[2J\x1b]0;owned\x07resnet\r" in out
    head, row = out.splitlines()[-2:]  # a row stays a row
    assert head.split() == ["name", r"acc\x1b[2J\x1b]0;owned\x07"]
    assert row.split() == [r"a\x1b[2J\x1b]0;owned\x07\nb\u202edab", "1"]


def test_a_drawn_table_has_names_as_they_are(monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    print_table(["step", f"[bold]{CLEAR}"], [["1", "[red]2"]], "none")
    drawn = terminal.getvalue()
    assert r"[bold]\x1b[2J\x1b]0;owned\x07" in drawn
    assert "[red]2" in drawn
    assert not set(drawn) & set("\x07")


def test_what_a_notebook_and_an_error_say_is_harmless_too():
    assert not set(table([f"a{CLEAR}"], [[f"b{CLEAR}"]])["text/plain"]) & set("\x1b\x07")
    assert NotFound(f"no {CLEAR}")._render_traceback_() == [r"NotFound: no \x1b[2J\x1b]0;owned\x07"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("10%\r20%\x08", "10%\r20%\x08"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_a_log_keeps_colours_and_bars_on_a_terminal_and_all_of_itself_in_a_pipe(text, shown, monkeypatch, capsys):
    assert harmless_log(text) == shown
    hand_over(text, log=True)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    hand_over(text, log=True)
    assert terminal.getvalue() == shown


def test_what_people_write_stays_as_it_is():
    for text in ("ResNet-18 für Köln 🚀", "a\tb\nc", "数据", ""):
        assert harmless(text) == text


def test_whoever_prints_prints_through_one_place():
    """Only JSON and constants may be printed by a bare `print`; `output.py` escapes everything else."""
    bare = []
    for package in (kernel_backend.cli, jupyter_ext):
        folder = Path(package.__file__).parent
        for file in sorted(folder.rglob("*.py")):
            calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
            prints = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
            bare += [f"{file.relative_to(folder)}:{node.lineno}" for node in prints]
    allowed = ("output.py", "__init__.py", "page.py", "checkpoints.py")
    assert [each for each in bare if not each.startswith(allowed)] == []
