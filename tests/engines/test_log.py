"""Test reading a log file in pieces, from an offset or its end, without splitting lines or characters needlessly."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.engines.log import CHUNK, Piece, read_on, read_tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.log"


TAILS = {
    "of an empty log": ("", 10, ""),
    "larger than the log": ("one\ntwo\n", 100, "one\ntwo\n"),
    "as large as the log": ("one\ntwo\n", 8, "one\ntwo\n"),
    "that begins exactly where a line does": ("one\ntwo\n", 4, "two\n"),
    "that begins within a line": ("one\ntwo\nthree\n", 8, "three\n"),
    "that begins at a line's end": ("one\ntwo\n", 5, "two\n"),
    "whose last line has no end": ("one\ntwo\nthr", 5, "thr"),
    "of an empty line": ("one\n\n", 1, "\n"),
    "of a line that is longer": ("one\n" + "x" * 50 + "\n", 11, "x" * 10 + "\n"),
    "of a log without any line's end": ("x" * 50, 10, "x" * 10),
    "that begins within a character": ("é" * 50, 9, "é" * 4),
    "that begins within a long character": ("😀" * 50, 11, "😀" * 2),
    "that begins with a character": ("é" * 50, 10, "é" * 5),
    "smaller than a character": ("é" * 50, 1, ""),
    "that begins within a character before a line's end": ("éé\nää\n", 6, "ää\n"),
}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(("whole", "tail", "expected"), TAILS.values(), ids=TAILS.keys())
def test_a_tail(log: Path, whole: str, tail: int, expected: str, ended: bool) -> None:
    log.write_text(whole)
    size = len(whole.encode())
    assert read_tail(log, tail, ended) == Piece(expected, size, size)


@pytest.mark.parametrize(
    "read", [lambda log, ended: read_on(log, 4, ended), lambda log, ended: read_tail(log, 4, ended)]
)
def test_a_character_that_is_not_written_whole_yet_comes_with_what_follows(log: Path, read) -> None:
    log.write_bytes(b"one\na" + "😀".encode()[:3])
    assert read(log, ended=False) == Piece("a", 5, 5)
    assert read(log, ended=True) == Piece("a\N{REPLACEMENT CHARACTER}", 8, 8)
    log.write_bytes(b"one\na" + "😀".encode())
    assert read_on(log, 5, ended=False) == Piece("😀", 9, 9)


def test_a_long_log_is_read_on_line_by_line(log: Path) -> None:
    lines = [f"{number} é 😀\n" for number in range(60_000)]
    log.write_text("".join(lines))
    pieces = [read_on(log, 0, ended=False)]
    while pieces[-1].offset < pieces[-1].size:
        pieces.append(read_on(log, pieces[-1].offset, ended=False))
    assert len(pieces) > 2
    assert all(piece.text.endswith("\n") for piece in pieces)
    assert "".join(piece.text for piece in pieces) == "".join(lines)


def test_a_line_longer_than_a_piece_is_cut_between_characters(log: Path) -> None:
    whole = "x" + "é" * CHUNK
    log.write_text(whole)
    pieces = [read_on(log, 0, ended=True)]
    while pieces[-1].offset < pieces[-1].size:
        pieces.append(read_on(log, pieces[-1].offset, ended=True))
    assert "".join(piece.text for piece in pieces) == whole


def test_bytes_that_are_no_text_are_shown_as_such(log: Path) -> None:
    log.write_bytes(b"one\n\xff\xfe two\n")
    assert read_tail(log, 100, ended=False).text == "one\n\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} two\n"


def test_a_log_that_was_cut_short_is_read_from_its_end(log: Path) -> None:
    log.write_text("one\n")
    assert read_on(log, 10**9, ended=False) == Piece("", 4, 4)
