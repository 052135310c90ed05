"""Test archives of snapshots: they are named by content, and checked before they are stored."""

from __future__ import annotations

import io
import pickle
import stat
import zipfile
from pathlib import Path

import pytest

from kernel_backend.errors import InvalidRequest, NotFound, TooLarge
from kernel_backend.model.snapshot import Environment, Piece, Snapshot
from kernel_backend.snapshots import archive as archives
from kernel_backend.snapshots.archive import Archive, digest, pack, pack_snapshot, unpack

SNAPSHOT = Snapshot(
    version="1",
    numerics=1,
    pieces=(Piece(cell=1, line=1, count=1, cell_line=2),),
    roles_from=1,
    environment=Environment(python="3", implementation="C", platform="l", cpu="c", cores=2, distributions={"a": "1"}),
)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "snapshots")


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, data in members:
            file.writestr(name, data)
    return buffer.getvalue()


def refused(archive: Archive, data: bytes) -> str:
    with pytest.raises(InvalidRequest) as error:
        archive.put(digest(data), data)
    assert list(archive.root.iterdir() if archive.root.exists() else []) == []
    return error.value.message


def test_the_same_files_give_the_same_id_in_any_order():
    one = pack({"a.py": b"1", "b/c.py": b"2"})
    assert one == pack({"b/c.py": b"2", "a.py": b"1"})
    assert one[0] == digest(one[1])
    assert one[0] != pack({"a.py": b"1", "b/c.py": b"3"})[0]


def test_the_id_of_an_archive_is_the_same_on_every_machine_and_day():
    assert pack({"definition.py": b"x = 1\n"})[0] == "d37baea9852107dc2070101435dea5161329c67fcf7e1cc138c9e4fbc60f49b0"


def test_what_is_put_comes_back_and_is_unpacked(archive: Archive, tmp_path: Path):
    id, data = pack_snapshot("x = 1\n", SNAPSHOT)
    assert not archive.has(id)
    archive.put(id, data)
    archive.put(id, data)
    assert archive.has(id)
    assert archive.get(id) == data
    assert archive.read(id, "definition.py") == b"x = 1\n"
    assert archive.snapshot(id) == SNAPSHOT
    unpack(archive.get(id), tmp_path / "code")
    assert (tmp_path / "code" / "definition.py").read_text() == "x = 1\n"
    assert [path.name for path in archive.root.iterdir()] == [f"{id}.zip"]


def test_bytes_that_are_not_those_of_the_id_are_refused(archive: Archive):
    id, data = pack({"a": b"1"})
    with pytest.raises(InvalidRequest, match="sha256"):
        archive.put(id, data + b" ")
    with pytest.raises(InvalidRequest, match="sha256"):
        archive.put("../../etc/passwd", data)


def test_what_is_not_there_is_not_found(archive: Archive):
    for id in ("0" * 64, "../x", ""):
        assert not archive.has(id)
        with pytest.raises(NotFound):
            archive.get(id)
    id, data = pack({"a": b"1"})
    archive.put(id, data)
    with pytest.raises(NotFound, match="no file"):
        archive.read(id, "b")
    with pytest.raises(NotFound):
        archive.snapshot(id)


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "a\\b", "folder/"])
def test_names_that_leave_the_folder_are_refused(archive: Archive, name: str):
    assert repr(name) in refused(archive, zipped((name, b"")))


def test_links_are_refused(archive: Archive):
    link = zipfile.ZipInfo("a")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "link" in refused(archive, zipped((link, b"/etc/passwd")))


def test_what_is_no_archive_or_damaged_is_refused(archive: Archive):
    refused(archive, b"hello")
    _, data = pack({"a": b"some text that is long enough"})
    assert "damaged" in refused(archive, data.replace(b"long", b"LONG"))


def test_a_bomb_is_refused_before_it_is_unpacked(archive: Archive, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archives, "MAX_BYTES", 10_000)
    data = zipped(("a", b"\0" * 1_000_000), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(TooLarge, match="limits"):
        archive.put(digest(data), data)


def lying(data: bytes, name: str, size: int) -> bytes:
    """Return the same archive, whose directory claims that a member has `size` bytes."""
    at = data.rindex(b"PK\1\2", 0, data.rindex(name.encode()))
    return data[: at + 24] + size.to_bytes(4, "little") + data[at + 28 :]


def test_a_member_that_is_larger_than_it_says_is_refused(archive: Archive):
    data = lying(zipped(("a", b"\0" * 1_000_000), compression=zipfile.ZIP_DEFLATED), "a", 1000)
    assert "damaged" in refused(archive, data)


def test_a_definition_that_nobody_has_written_is_refused_before_it_is_read(archive: Archive):
    data = zipped(("definition.py", b"x = 1\n" * 1_700_000), compression=zipfile.ZIP_DEFLATED)
    assert len(data) < 50_000
    with pytest.raises(TooLarge, match=r"definition.py of this snapshot has 9.7 MiB; the limit is 1 MiB"):
        archive.put(digest(data), data)


@pytest.mark.parametrize("packed", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_ways_of_packing_that_know_no_bound_are_refused(archive: Archive, packed: int):
    assert "store or deflate" in refused(archive, zipped(("a", b"1"), compression=packed))


def test_a_table_of_more_members_than_there_may_be_is_refused_before_it_is_read(archive: Archive):
    many = zipped(*((f"{number}", b"") for number in range(archives.MAX_MEMBERS + 1)))
    few = many[:-14] + b"\1\0\1\0" + many[-10:]  # the end says that there is one
    for data in (many, few[:-12] + many[-12:]):
        with pytest.raises(TooLarge, match="20,001 files"):
            archive.put(digest(data), data)


def test_a_zip_whose_end_is_hidden_behind_a_comment_is_refused(archive: Archive):
    data = zipped(("a", b"1"))
    assert "plain zip" in refused(archive, data[:-2] + b"\5\0hello")


def test_a_definition_is_utf8(archive: Archive):
    data = zipped(("definition.py", b"# -*- coding: latin-1 -*-\nx = '\xe9'\n"))
    assert "definition.py is not UTF-8: byte 0xe9 on line 2" in refused(archive, data)


def test_files_are_read_when_they_are_asked_for_and_travel_without_what_was_read(archive: Archive):
    id, data = pack({"a.py": b"1", "b.py": b"2", "c": b"3"})
    archive.put(id, data)
    files = archive.files(id, lambda name: name.endswith(".py")).beside({"d": b"4"})
    assert dict(files) == {"a.py": b"1", "b.py": b"2", "d": b"4"}
    assert dict(pickle.loads(pickle.dumps(files))) == dict(files)
    assert len(pickle.dumps(files)) < 1000
    assert "c" not in files
