"""Test how tables are fitted into a terminal."""

from __future__ import annotations

from kernel_backend.cli.fit import fitted
from kernel_backend.cli.output import drawn_table

HEAD = ["id", "name", "metrics", "lr", "slots", "elapsed"]
ROW = [
    "12",
    "quickstart: lr 0.0002573, width 64",
    "loss 0.1429  accuracy 0.9661  f1 0.9613",
    "0.0002573",
    "2",
    "1 h 05 min",
]


def lines(width: int, head: list[str] = HEAD, row: list[str] = ROW) -> list[str]:
    from rich.console import Console

    console = Console(width=width, record=True, force_terminal=False)
    console.begin_capture()
    console.print(drawn_table(*fitted(head, [row], width, ("elapsed", "slots"))))
    return [line.rstrip() for line in console.end_capture().splitlines() if line.strip()]


def test_a_table_that_fits_stays_as_it_is():
    assert fitted(HEAD, [ROW], 160) == (HEAD, [ROW])


def test_a_narrow_terminal_has_a_line_for_each_row_and_no_number_is_cut():
    for width in (80, 100):
        head, _, row = lines(width)
        assert "elapsed" in head
        assert "0.0002573" in row
        assert len(row) <= width
    assert "loss 0.1429…" in lines(80)[2]  # a value is whole, or left out


def test_columns_are_left_out_before_texts_are_cut_to_nothing():
    head, _, row = lines(66)
    assert "elapsed" not in head
    assert "slots" in head
    assert "slots" not in lines(58)[0]
    assert "quickstart: lr…" in row
    assert "0.0002573" in row


def test_a_table_of_numbers_alone_shortens_its_heads_and_texts():
    head = ["trial", "state", "epoch", "accuracy", "loss", "lr", "dropout", "width", "act"]
    row = ["2.16", "completed", "10", "0.9697", "0.1012", "0.0002573", "0.1034", "128", "gelu"]
    (_, _, shown) = lines(80, head, row)
    assert shown.split() == ["2.16", "compl…", *row[2:]]
