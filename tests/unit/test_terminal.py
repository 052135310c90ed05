"""What somebody else has named or printed steers nobody's terminal."""

from __future__ import annotations

from kernel_backend.cli.output import harmless, print_table, say, tell

CLEAR = "\x1b[2J\x1b]0;owned\x07"  # clears the screen, and sets the window's title


def test_what_steers_a_terminal_is_shown_and_not_obeyed(capsys):
    tell(f"#12 {CLEAR}resnet\r\nrunning")
    say(f"note: {CLEAR}")
    print_table(["name"], [[f"a{CLEAR}\nb\u202edab"]], "none")
    out, err = capsys.readouterr()
    assert not set(out + err) & set("\x1b\x07\r\u202e")
    assert r"\x1b[2J\x1b]0;owned\x07resnet\r" in out
    assert out.splitlines()[-1] == r"a\x1b[2J\x1b]0;owned\x07\nb\u202edab"  # a row stays a row


def test_what_people_write_stays_as_it_is():
    for text in ("ResNet-18 für Köln 🚀", "a\tb\nc", "数据", ""):
        assert harmless(text) == text
