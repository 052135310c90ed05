"""Test the tables and lines of where the time of a training goes."""

from __future__ import annotations

from kernel_backend.model.times import Part, RankTimes, Split, Times, added
from kernel_backend.text.times import TOP_HEAD, profile_head, profile_lines, profile_rows, since, top_lines, top_rows


def split(steps: int = 100, **parts: float) -> Split:
    named: dict[Part, float] = dict(parts)  # type: ignore[arg-type]
    return Split(steps=steps, parts=named)


def times(*ranks: RankTimes, live: bool = True, sentence: str = "") -> Times:
    whole, minute = added(each.whole for each in ranks), added(each.minute for each in ranks)
    return Times(trial=1, live=live, whole=whole, minute=minute, ranks=ranks, sentence=sentence)


def rank(number: int, whole: Split, minute: Split | None = None) -> RankTimes:
    return RankTimes(rank=number, node="n1", now="data", whole=whole, minute=minute or whole)


def test_a_profile_has_a_row_for_each_part_that_took_time() -> None:
    found = times(rank(0, split(forward=6.0, data=2.0), split(10, forward=0.5, data=0.5)), sentence="cause")
    assert profile_head(found) == ["", "last minute", "whole run", "rank 0"]
    assert profile_rows(found) == [
        ["waiting for data", "50 %", "25 %", "50 %"],
        ["forward", "50 %", "75 %", "50 %"],
        ["a step takes", "100 ms", "80 ms", "100 ms"],
    ]
    assert profile_lines(found) == ["cause"]


def test_after_the_end_the_ranks_show_the_whole_run_and_many_are_cut() -> None:
    ranks = [rank(number, split(forward=6.0), split(forward=1.0, data=1.0)) for number in range(10)]
    found = times(*ranks, live=False)
    assert profile_rows(found)[0] == ["forward", "50 %", *["100 %"] * 9]
    assert profile_lines(found) == ["columns of ranks: the whole run", "2 more ranks: see --json"]


def test_nothing_measured_has_no_rows() -> None:
    assert profile_rows(times()) == []


def test_the_head_of_top_fits_into_120_columns() -> None:
    node, part = 20, 13  # letters of a long name, and of the longest part
    assert len("  ".join(TOP_HEAD)) + node - len("node") + part - len("now in") <= 120


def test_top_shows_the_seconds_since_the_last_answer() -> None:
    before = times(rank(0, split(100, forward=6.0, data=2.0)))
    now = times(rank(0, split(120, forward=7.5, data=2.5)))
    (only,) = since(before, now)
    assert (only.minute.steps, only.minute.seconds, only.minute.share("data")) == (20, 2.0, 0.25)
    assert top_rows([only]) == [["0", "n1", "data", "10", "25 %", "0 %", "0 %", "75 %", *["0 %"] * 6]]
    assert top_lines([only]) == ["rank 0 (n1): data 25 %, forward 75 %"]


def test_a_rank_that_began_anew_shows_its_last_minute() -> None:
    before = times(rank(0, split(100, forward=6.0)))
    now = times(rank(0, split(5, forward=1.0), split(5, forward=1.0)), rank(1, split(5, data=1.0)))
    assert [each.minute for each in since(before, now)] == [split(5, forward=1.0), split(5, data=1.0)]
