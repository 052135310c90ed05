"""Test that the holder of an allocation reads orders and writes events, even after a writer died within a line."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.engines.allocations.holder import FileChannel, Holder
from kernel_backend.engines.allocations.lines import EVENTS, ORDERS, append_line, read_lines
from kernel_backend.engines.slurm.holder import JobSteps


def told(folder: Path) -> list[tuple[str, str]]:
    return [(each["event"], each.get("key", "")) for each in read_lines(folder / EVENTS)[0]]


def order(folder: Path, what: str, key: str, script: str = "") -> None:
    path = folder / f"{key}.sh"
    path.write_text(script)
    append_line(folder / ORDERS, order=what, key=key, script=str(path), log=str(folder / "log"))


def holder_of(folder: Path, idle: float) -> Holder:
    return Holder(FileChannel(folder), JobSteps(), idle)


def until_over(holder: Holder) -> None:
    while holder.turn():
        pass


def test_a_line_that_was_cut_is_left_out_and_those_after_it_are_read(tmp_path):
    path = tmp_path / "lines"
    append_line(path, key="a")
    with path.open("ab") as file:
        file.write(b'{"key": "b')
    found, offset = read_lines(path)
    assert found == [{"key": "a"}]
    append_line(path, key="c")
    assert read_lines(path, offset)[0] == [{"key": "c"}]


def test_gangs_run_one_after_another_each_key_once(tmp_path):
    for key in ("a", "b", "a"):
        order(tmp_path, "start", key, f"echo {key}")
    until_over(holder_of(tmp_path, idle=0.0))
    assert (tmp_path / "log").read_text() == "a\nb\n"
    assert told(tmp_path) == [("started", "a"), ("ended", "a"), ("started", "b"), ("ended", "b"), ("closed", "")]


def test_a_gang_that_is_withdrawn_before_its_turn_never_begins(tmp_path):
    order(tmp_path, "start", "a")
    order(tmp_path, "release", "a")
    until_over(holder_of(tmp_path, idle=0.0))
    assert told(tmp_path) == [("ended", "a"), ("closed", "")]


def test_an_allocation_that_is_given_back_ends_after_its_gang_and_starts_no_other(tmp_path):
    order(tmp_path, "start", "a", "sleep 0.3")
    holder = holder_of(tmp_path, idle=60.0)
    assert holder.turn()
    order(tmp_path, "start", "b")
    append_line(tmp_path / ORDERS, order="close", why="others wait")
    until_over(holder)
    assert told(tmp_path) == [("started", "a"), ("ended", "a"), ("closed", "")]
    assert read_lines(tmp_path / EVENTS)[0][-1]["why"] == "others wait"


def test_a_gang_whose_start_cannot_be_told_is_not_started(tmp_path):
    order(tmp_path, "start", "a", "echo a")
    (tmp_path / EVENTS).mkdir()  # as where the disk is full
    holder = holder_of(tmp_path, idle=60.0)
    assert holder.turn()
    assert not (tmp_path / "log").exists()
    (tmp_path / EVENTS).rmdir()
    append_line(tmp_path / ORDERS, order="close")
    until_over(holder)
    assert told(tmp_path) == [("closed", "")]
    assert not (tmp_path / "log").exists()


def test_a_gang_whose_start_is_withdrawn_before_its_turn_never_begins(tmp_path):
    order(tmp_path, "start", "a", "echo a")
    order(tmp_path, "withdrawn", "a")
    until_over(holder_of(tmp_path, idle=0.0))
    assert not (tmp_path / "log").exists()
    assert told(tmp_path) == [("ended", "a"), ("closed", "")]


def test_a_gang_may_be_withdrawn_from_an_allocation_and_get_it_later(tmp_path):
    order(tmp_path, "withdrawn", "a")  # as where it is not known whether Slurm has accepted the job
    order(tmp_path, "start", "a", "echo a")
    until_over(holder_of(tmp_path, idle=0.0))
    assert (tmp_path / "log").read_text() == "a\n"
