"""Test reads of files that users may have replaced: by a pipe, by a device that never ends, or by a very large one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kernel_backend.checkpoints.base import parse
from kernel_backend.differences.tensors import MOST_HEADER, first_difference
from kernel_backend.engines.allocations import lines
from kernel_backend.engines.log import CHUNK, read_end
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.tail import SMALL, small_file


def sparse(path: Path, size: int = SMALL + 1) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def test_a_small_file_is_read_whole_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    sparse(tmp_path / "large")
    os.mkfifo(tmp_path / "pipe")
    assert small_file(tmp_path / "small", most=3) == b"abc"
    for path, number in (("large", errno.EFBIG), ("pipe", errno.ENXIO), ("missing", errno.ENOENT)):
        with pytest.raises(OSError) as raised:  # noqa: PT011  the number says which
            small_file(tmp_path / path)
        assert raised.value.errno == number
    with pytest.raises(OSError, match="it is no regular file"):
        small_file(Path("/dev/zero"))


def test_records_of_ranks_that_are_no_small_files_are_as_if_they_were_missing(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    sparse(tmp_path / "failure-0.json")
    (tmp_path / "outcome.json").symlink_to("/dev/zero")
    assert folder.failures() == {}
    assert folder.result() is None


def test_a_manifest_that_is_nested_too_deeply_is_damaged() -> None:
    with pytest.raises(CheckpointDamaged, match="recursion"):
        parse(b"[" * 100_000)


def test_a_header_that_claims_to_be_large_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="is the limit"):
        first_difference([(MOST_HEADER + 1).to_bytes(8, "little"), b" " * 100], [b"\0" * 8])


def test_only_the_end_of_a_launchers_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    assert read_end(log) == ""
    sparse(log, 50 * CHUNK)
    with log.open("ab") as file:
        file.write(b"\nthe end\n")
    assert len(read_end(log)) <= CHUNK
    assert read_end(log) == "the end\n"


def test_events_of_a_holder_are_read_in_parts_and_a_line_without_end_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "AT_ONCE", 64)
    events = tmp_path / "events"
    events.write_text('{"event": "begun"}\n' + "x" * 200 + '\n{"event": "closed"}\n' + "[" * 50)
    found, offset = [], 0
    for _ in range(5):
        some, offset = lines.read_lines(events, offset)
        found += some
    assert found == [{"event": "begun"}, {"event": "closed"}]
    assert offset == events.stat().st_size - 50
