"""Test `run.artifact`: which names and files it accepts, and that the same files give the same bytes, atomically."""

from __future__ import annotations

import copy
import os
import pickle
import resource
import socket
import zipfile
from pathlib import Path

import pytest
import xxhash

import daylight
from kernel_backend.artifacts.run import Run
from kernel_backend.artifacts.write import keep, look, sweep
from kernel_backend.durable import TEMPORARY
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.artifacts import check_name, file_of, media_of

NO_NAMES = ["", ".", "..", ".hidden", "a/b", "/etc", "../up", "a\\b", "a\nb", "a\0b", "é", "a ", " a", "-o", "x" * 101]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a working folder with an image file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.png").write_bytes(b"picture")
    return tmp_path


@pytest.fixture
def folder(here: Path) -> Path:
    made = here / "report"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "b.csv").write_text("2")
    (made / "a.txt").write_text("1")
    return made


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_is_one_plain_part_of_a_path(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no name of an artifact"):
        look(name, "net.png")


@pytest.mark.parametrize("name", ["a", "net 2.png", "_x-1", "x" * 100, "v1..2"])
def test_names_that_may_be(name: str) -> None:
    assert check_name(name) == name


def test_a_file_is_kept_under_its_name_in_place_of_the_one_before(here: Path) -> None:
    source = look("architecture", "net.png")
    assert (source.name, source.file, source.media) == ("architecture", "architecture.png", "image/png")
    keep(source, here / "kept" / "1")
    (here / "net.png").write_bytes(b"another")
    written = keep(look("architecture", "net.png"), here / "kept" / "1")
    assert written == (7, xxhash.xxh3_128_hexdigest(b"another"))
    assert [each.name for each in (here / "kept" / "1").iterdir()] == ["architecture"]
    assert (here / "kept" / "1" / "architecture").read_bytes() == b"another"


def test_a_folder_is_kept_as_a_zip_of_which_every_byte_follows_from_the_files(here: Path, folder: Path) -> None:
    source = look("report", folder)
    assert (source.name, source.file, source.media) == ("report.zip", "report.zip", "application/zip")
    first = keep(source, here / "kept")
    data = (here / "kept" / "report.zip").read_bytes()
    assert first == (len(data), xxhash.xxh3_128_hexdigest(data))
    with zipfile.ZipFile(here / "kept" / "report.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"a.txt": b"1", "deep/b.csv": b"2"}
        assert archive.testzip() is None
    os.utime(folder / "a.txt", (1, 1))
    (folder / "a.txt").chmod(0o600)
    assert keep(look("report.zip", folder), here / "kept") == first
    (folder / "a.txt").write_text("3")
    assert keep(look("report", folder), here / "kept").digest != first.digest


def test_a_link_within_a_folder_is_followed_and_one_that_leads_out_is_refused(here: Path, folder: Path) -> None:
    (folder / "again").symlink_to("a.txt")
    assert set(look("report", folder).files or ()) == {"a.txt", "again", "deep/b.csv"}
    (folder / "out").symlink_to(here / "net.png")
    with pytest.raises(InvalidRequest, match=r"out' is a link that leads out of .*net\.png: copy"):
        look("report", folder)


@pytest.mark.parametrize("target", ["deep", "gone"])
def test_a_link_to_a_folder_or_to_nothing_is_refused(folder: Path, target: str) -> None:
    (folder / "link").symlink_to(target)
    with pytest.raises(InvalidRequest, match="link' is neither a file nor a folder"):
        look("report", folder)


def test_what_is_not_there_and_what_is_no_file_is_refused(here: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"'missing\.png' cannot be read \(No such file.*\): write it first, in /"):
        look("net", "missing.png")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        os.mkfifo("pipe")
        for strange in ("socket", "pipe", "/dev/null"):
            with pytest.raises(InvalidRequest, match="is neither a file nor a folder"):
                look("net", strange)
        with pytest.raises(InvalidRequest, match="is neither a file nor a folder"):
            look("all", here)


def test_what_finds_no_room_leaves_what_was_there(here: Path) -> None:
    keep(look("net", "net.png"), here / "kept")
    (here / "net.png").write_bytes(b"a picture of more than ten bytes")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            keep(look("net", "net.png"), here / "kept")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {each.name: each.read_bytes() for each in (here / "kept").iterdir()} == {"net": b"picture"}


def test_what_a_killed_attempt_has_begun_is_swept(here: Path) -> None:
    keep(look("net", "net.png"), here / "kept")
    (here / "kept" / f"{TEMPORARY}net").write_bytes(b"pic")
    sweep(here / "kept")
    assert [each.name for each in (here / "kept").iterdir()] == ["net"]


@pytest.mark.parametrize(
    ("name", "path", "file", "media"),
    [
        ("net", "a/net.PNG", "net.PNG", "image/png"),
        ("net.png", "x.png", "net.png", "image/png"),
        ("v1.2", "x.svg", "v1.2.svg", "image/svg+xml"),
        ("photo", "x.webp", "photo.webp", "image/webp"),
        ("table", "t.tar.gz", "table.gz", "application/octet-stream"),
        ("weights", "w.npz", "weights.npz", "application/octet-stream"),
        ("odd", 'x.p"ng', "odd", "application/octet-stream"),
        ("plain", "README", "plain", "application/octet-stream"),
    ],
)
def test_a_download_has_the_suffix_of_what_was_kept(name: str, path: str, file: str, media: str) -> None:
    assert file_of(name, Path(path)) == file
    assert media_of(file) == media


def test_in_a_notebook_it_says_what_it_would_do_and_refuses_what_a_job_would(
    here: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daylight.run.artifact("architecture", "net.png")
    daylight.run.artifact("report", folder)
    assert capsys.readouterr().out.splitlines() == [
        "run.artifact: architecture (image/png, 7 bytes); an experiment would keep it",
        "run.artifact: report.zip (folder, 2 bytes); an experiment would keep it",
    ]
    with pytest.raises(InvalidRequest):
        daylight.run.artifact("architecture", "missing.png")
    assert {each.name for each in here.iterdir()} == {"net.png", "report"}


def test_a_rank_hands_on_what_is_asked_and_the_others_do_not_even_look() -> None:
    first, other, asked = Run(), Run(), []
    first.begin(lambda name, path: asked.append((name, path)))
    other.begin(None)
    first.artifact("net", "net.png")
    other.artifact("net", "only rank 0 has written this.png")
    assert asked == [("net", Path("net.png"))]


def test_a_loader_worker_is_told_that_it_is_none() -> None:
    run, read, write = Run(), *os.pipe()
    run.begin(lambda name, path: None)
    child = os.fork()
    if child == 0:
        try:
            run.artifact("net", "net.png")
        except InvalidRequest as error:
            os.write(write, error.message.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).startswith(b"run.artifact() is called in a loader worker")
    os.close(read)
    os.close(write)


def test_what_holds_it_can_be_copied_and_sent() -> None:
    assert copy.deepcopy({"run": daylight.run})["run"] is daylight.run
    assert pickle.loads(pickle.dumps(daylight.run)) is daylight.run


def test_its_folder_is_its_own(here: Path) -> None:
    run = Run()
    (run.folder / "net.png").write_bytes(b"mine")
    assert run.folder == run.folder
    assert run.folder != Run().folder
    assert here not in run.folder.parents
