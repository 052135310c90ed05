"""Archives of snapshots: named by content, checked before they are stored."""

from __future__ import annotations

import io
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
