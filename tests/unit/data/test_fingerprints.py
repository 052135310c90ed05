"""Test fingerprints of folders: they detect every change, read only changed files, and handle unusual files."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import xxhash

from kernel_backend.data import base, cache, changed_text, declare, folders
from kernel_backend.data.base import UNREADABLE, File, Fingerprint
from kernel_backend.data.cache import StatCache
from kernel_backend.differences.listing import changes, read_list
from kernel_backend.errors import InvalidRequest

FILES = {"a.txt": b"alpha", "b.txt": b"beta", "inner/c.txt": b"gamma", "inner/deep/d.txt": b""}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        write(tmp_path / "data" / name, content)
    return tmp_path / "data"


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Provide `look(root)`: it returns the fingerprint, with a cache that trusts files as soon as they were read."""
    monkeypatch.setattr(cache, "RACY_NS", 0)

    def fingerprint(root: Path, file: Path | None = tmp_path / "fingerprints.db") -> Fingerprint:
        a_tick(tmp_path / "tick")
        return folders.fingerprint(root, StatCache(file), lambda text: None)

    return fingerprint


def a_tick(file: Path) -> None:
    """Wait until the file system's clock has advanced, which takes some milliseconds."""
    file.touch()
    before = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == before:
        file.touch()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def between(before: Fingerprint, now: Fingerprint) -> tuple[tuple[str, ...], ...]:
    """Return the names that were added, removed and changed."""
    return tuple(changes(read_list(before.listed), read_list(now.listed)))


def test_every_file_is_listed_with_its_size_and_digest(root, look):
    found = look(root)
    assert found.files == tuple(
        File(name, len(content), xxhash.xxh3_128_hexdigest(content)) for name, content in sorted(FILES.items())
    )
    assert (found.bytes, found.read) == (14, 4)


def test_what_has_not_changed_is_not_read_again(root, look):
    first, again = look(root), look(root)
    assert (again.read, again.digest, again.files) == (0, first.digest, first.files)


def test_one_changed_file_is_the_only_one_that_is_read(root, look):
    before = look(root)
    write(root / "b.txt", b"other")
    now = look(root)
    assert now.read == 1
    assert between(before, now) == ((), (), ("b.txt",))


def test_an_edit_to_the_same_size_with_its_time_put_back_is_seen(root, look):
    before, status = look(root), (root / "a.txt").stat()
    write(root / "a.txt", b"ALPHA")
    os.utime(root / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (root / "a.txt").stat().st_mtime_ns == status.st_mtime_ns
    assert between(before, look(root)) == ((), (), ("a.txt",))


def test_a_file_that_changes_within_a_tick_of_the_clock_is_not_taken_from_the_cache(root, tmp_path):
    for number in range(30):
        write(root / "a.txt", b"%05d" % number)
        found = folders.fingerprint(root, StatCache(tmp_path / "db"), print)
        assert found.files[0].digest == xxhash.xxh3_128_hexdigest(b"%05d" % number)


def test_a_file_that_was_renamed_is_added_and_removed(root, look):
    before = look(root)
    (root / "a.txt").rename(root / "z.txt")
    assert between(before, look(root)) == (("z.txt",), ("a.txt",), ())


def test_another_file_with_the_old_ones_looks_in_its_place_is_seen(root, look, tmp_path):
    before = look(root)
    write(tmp_path / "other", b"ALPHA")
    status = (root / "a.txt").stat()
    os.utime(tmp_path / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "other").rename(root / "a.txt")
    assert between(before, look(root)) == ((), (), ("a.txt",))


@pytest.mark.parametrize("seed", range(6))
def test_after_any_edits_the_cache_knows_what_a_fresh_look_knows(root, look, seed):
    draw = random.Random(seed)
    for _ in range(8):
        for _ in range(draw.randrange(4)):
            edit(root, draw)
        cached, fresh = look(root), look(root, None)
        assert cached.files == fresh.files
        assert cached.read <= fresh.read


def edit(root: Path, draw: random.Random) -> None:
    path = draw.choice(sorted(each for each in root.rglob("*") if each.is_file()))
    match draw.randrange(6):
        case 0:
            write(path.with_name(f"new{draw.randrange(9)}"), draw.randbytes(5))
        case 1 if len(list(root.rglob("*"))) > 4:
            path.unlink()
        case 2:
            status = path.stat()
            path.write_bytes(draw.randbytes(status.st_size))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        case 3:
            path.rename(path.with_name(f"moved{draw.randrange(9)}"))
        case 4:
            write(root / f"folder{draw.randrange(3)}" / path.name, path.read_bytes())
        case 5:
            os.utime(path)


def test_links_are_followed_and_circles_end(root, look, tmp_path):
    write(tmp_path / "elsewhere" / "e.txt", b"linked")
    (root / "outside").symlink_to(tmp_path / "elsewhere")
    (root / "alias.txt").symlink_to(root / "a.txt")
    (root / "inner" / "up").symlink_to(root)
    (root / "nothing").symlink_to(root / "gone")
    (root / "itself").symlink_to(root / "itself")
    names = {file.name for file in look(root).files}
    assert names == {*FILES, "outside/e.txt", "alias.txt"}


def test_what_is_no_file_is_left_out(root, look):
    os.mkfifo(root / "pipe")
    assert {file.name for file in look(root).files} == set(FILES)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        (b"na\xefve.txt", r"na\udcefve.txt"),
        ("naïve \U0001f33b.txt".encode(), "naïve \U0001f33b.txt"),
        (b"tab\there\nline\r", r"tab\there\nline\r"),
        (rb"back\tslash", r"back\\tslash"),
        ("line\u2028separator\x85\x0b".encode(), "line\u2028separator\x85\x0b"),
    ],
)
def test_names_may_be_anything(root, look, name, listed):
    before = look(root)
    with open(os.path.join(os.fsencode(root), name), "wb") as file:
        file.write(b"x")
    now = look(root)
    assert between(before, now) == ((listed,), (), ())
    assert listed in changed_text("/data", before.listed, now.listed)


def test_a_single_file_has_its_own_name(root, look):
    assert look(root / "a.txt").files == (File("a.txt", 5, xxhash.xxh3_128_hexdigest(b"alpha")),)
    assert look(root / "a.txt").read == 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "is not there"),
        (lambda path: path.mkdir(), "has no file in it"),
        (os.mkfifo, "is neither a file nor a folder"),
    ],
)
def test_where_nothing_is_there_the_way_out_is_said(tmp_path, look, make, said):
    make(tmp_path / "data")
    with pytest.raises(InvalidRequest, match=f"--data {tmp_path}/data {said}: name a folder with files"):
        look(tmp_path / "data")


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(5000), b""])
def test_a_damaged_cache_is_made_anew(root, look, tmp_path, content):
    expected = look(root)
    (tmp_path / "fingerprints.db").write_bytes(content)
    assert look(root).files == expected.files
    look(root)
    assert look(root).read == 0


def test_a_cache_that_cannot_be_written_costs_time_only(root, look, tmp_path):
    assert look(root, tmp_path / "no such folder" / "fingerprints.db").read == 4
    with sqlite3.connect(tmp_path / "fingerprints.db") as other:
        other.execute("BEGIN EXCLUSIVE")
        assert look(root).read == 4


def test_two_at_once_do_not_disturb_each_other(root, look):
    found: list[Fingerprint] = []
    threads = [threading.Thread(target=lambda: found.append(look(root))) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {each.digest for each in found} == {look(root).digest}


def test_a_folder_that_changes_meanwhile_is_looked_at_all_the_same(root, tmp_path):
    def look(file: Path | None = tmp_path / "fingerprints.db") -> Fingerprint:
        return folders.fingerprint(root, StatCache(file), lambda text: None)

    for number in range(200):
        write(root / f"many/{number}", b"x")
    going = True

    def disturb() -> None:
        while going:
            write(root / "many/0", b"y" * random.randrange(9))
            write(root / "coming", b"z")
            (root / "coming").unlink()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(10):
            assert {"many/1", "a.txt"} <= {file.name for file in look().files}
    finally:
        going = False
        thread.join()
    assert look().files == look(None).files


def test_files_that_may_not_be_read_are_named(root, tmp_path):
    """The user is not root, who may read all files."""
    code = (
        "import os, sys; from pathlib import Path; from kernel_backend.data import declare;"
        "os.environ['DAYLIGHT_HOME'] = sys.argv[2];"
        "root = Path(sys.argv[1]); (root / 'a.txt').chmod(0); (root / 'inner').chmod(0);"
        "os.setgid(65534) if os.geteuid() == 0 else None; os.setuid(65534) if os.geteuid() == 0 else None;"
        "found = declare([str(root)], root); print(found.warnings[0]); print(found.files['data/0.tsv'].decode())"
    )
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o055)  # of one that others write to nothing is taken
    (tmp_path / "home").mkdir(mode=0o777)
    (tmp_path / "home").chmod(0o777)
    command = [sys.executable, "-c", code, str(root), str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (root / "inner").chmod(0o755)
    said, *listed = done.stdout.splitlines()
    assert "2 of 3 files cannot be read (first: a.txt): what is in them is not known" in said, done.stderr
    assert f"a.txt\t0\t{UNREADABLE}" in listed
    assert f"inner/\t0\t{UNREADABLE}" in listed


def test_a_long_look_says_how_far_it_is(root, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "TOLD_S", 0.0)
    monkeypatch.setattr(folders, "AT_ONCE", 2)
    said: list[str] = []
    folders.fingerprint(root, StatCache(None), said.append)
    assert said == [f"{root}: 2 of 4 files read"]


def test_a_difference_is_a_sentence():
    before = Fingerprint((File("b.csv", 3, "x"), File("c.csv", 3, "x")))
    now = Fingerprint((File("a.csv", 3, "x"), File("b.csv", 3, "y")))
    assert changed_text("/data/leslie", before.listed, now.listed) == (
        "/data/leslie: 1 file was added (a.csv), 1 file is gone (c.csv), 1 file has other bytes (b.csv)"
    )
    assert changed_text("/data/leslie", now.listed, now.listed) == ""


def test_no_two_names_are_printed_as_one():
    names = ["a\tb", r"a\tb", r"a\\tb", "a\nb", r"a\nb", "\udcff", r"\udcff", r"\\udcff"]
    assert len({base.printable(name) for name in names}) == len(names)


def test_what_is_declared_goes_into_a_snapshot_once(root, monkeypatch, tmp_path):
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "home"))
    found = declare(["data", str(root / "a.txt"), "data", "./data/", str(root), "data/../data"], tmp_path)
    assert [(data.name, data.path, data.files) for data in found.data] == [
        ("data", str(root), 4),
        (str(root / "a.txt"), str(root / "a.txt"), 1),
    ]
    assert {data.listed for data in found.data} == set(found.files) == {"data/0.tsv", "data/1.tsv"}
    assert found.warnings == ()
