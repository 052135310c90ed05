"""Test atomic writes: a file has its old or its new content, and the requested permissions."""

from __future__ import annotations

import os
import stat

import pytest

from kernel_backend.durable import replacing


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    return path


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_when_the_block_has_ended(path, durable):
    with replacing(path, durable=durable) as file:
        file.write(b"after")
        file.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert os.listdir(path.parent) == [path.name]


def test_an_error_leaves_what_was_there(path):
    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        fail()
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o600, 0o600), (0o644, 0o644)])
def test_permissions_are_those_of_the_umask_unless_they_are_named(path, mode, expected):
    before = os.umask(0o027)
    try:
        with replacing(path, mode=mode) as file:
            file.write(b"after")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == expected
