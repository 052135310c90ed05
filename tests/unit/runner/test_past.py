"""Test that a process is shown its files as they were, and that nothing it does meanwhile reaches them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import h5py
import pytest
import torch

from kernel_backend.runner.past import listing, namespace, replay
from kernel_backend.runner.past.overlays import Overlays
from kernel_backend.runner.past.record import Past
from kernel_backend.runner.past.undo import looks_for, put_back

_NOBODY = 65534


class Place:
    """Working folder of a program, and what is recorded of it."""

    def __init__(self, folder: Path) -> None:
        self.work, self.beside, self.job = folder / "work", folder / "beside", folder / "job"
        for each in (self.work, self.beside):
            each.mkdir()

    def past(self, *own: str) -> Past:
        """Return the record of the working folder at the start of the program, as the next attempt reads it."""
        return Past(self.job / "past", str(self.work), (str(self.job), *own))

    def overlays(self, *own: str) -> Overlays:
        """Return the overlays with which an attempt is shown the past."""
        return Overlays(self.past(*own), self.job / "replay")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.chdir(made.work)
    return made


def in_child(act: Callable[[], None]) -> None:
    """Run `act` in a forked process, as a namespace cannot be left; fail with its error."""
    assert namespace.works(act) == ""


def tree(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def changed(place: Place) -> Place:
    """Provide a place in which a program has removed, replaced, overwritten, moved, extended and made files."""
    for name in ("out/a", "out/deep/b", "config", "log", "data", "best", "kept"):
        path = place.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"first {name}")
    (place.beside / "c").write_text("first c")

    def program() -> None:
        place.past().begin()
        shutil.rmtree("out")
        os.makedirs("out")
        Path("out/new").write_text("new")
        Path("config").write_text("second")
        with open("log", "a") as file:
            file.write(" and more")
        os.rename("data", "moved")
        Path("moved").write_text("written in place")
        Path("made").write_text("made")
        os.replace("made", "best")
        os.makedirs("runs/1")
        (place.beside / "c").unlink()
        (place.beside / "d").write_text("new d")

    in_child(program)
    return place


FIRST = {name: f"first {name}" for name in ("out/a", "out/deep/b", "config", "log", "data", "best", "kept")}


def test_a_restart_is_shown_all_as_it_was(changed):
    after, beside = tree(changed.work), tree(changed.beside)
    assert after != FIRST

    def restart() -> None:
        overlays = changed.overlays()
        overlays.begin()
        assert tree(changed.work) == FIRST
        assert sorted(os.listdir(".")) == sorted({each.split("/")[0] for each in FIRST})
        assert tree(changed.beside) == {"c": "first c"}
        shutil.rmtree("out")
        os.mkdir("out")
        assert os.listdir("out") == []
        Path("kept").write_text("overwritten")
        overlays.end()
        assert tree(changed.work) == after

    in_child(restart)
    assert (tree(changed.work), tree(changed.beside)) == (after, beside)
    assert not (changed.job / "replay").exists()


def test_a_restart_that_is_killed_meanwhile_changes_nothing_and_the_next_one_is_shown_the_same(changed):
    after = tree(changed.work)

    def killed() -> None:
        changed.overlays().begin()
        shutil.rmtree("out")
        Path("config").write_text("third")

    in_child(killed)
    assert tree(changed.work) == after

    def restart() -> None:
        changed.overlays().begin()
        assert tree(changed.work) == FIRST

    in_child(restart)


def test_what_a_replay_writes_and_drops_is_not_synced_to_the_disk_first(changed):
    def program() -> None:
        changed.overlays().begin()
        mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "lowerdir=" in line]
        assert len(mounted) == 2
        assert [line for line in mounted if "volatile" not in line] == []

    in_child(program)


def test_a_restart_is_shown_the_state_of_a_loop_that_it_passes(changed):
    def restart() -> None:
        overlays = changed.overlays()
        overlays.begin()
        overlays.advance([str(changed.work / "runs")], {str(changed.work / "log"): 9})
        assert not Path("runs").exists()
        assert (Path("log").read_text(), Path("config").read_text()) == ("first log", "second")
        overlays.end()
        assert Path("log").read_text() == "first log and more"

    in_child(restart)


def test_folders_of_the_job_stay_real_and_open_files_are_connected_to_the_real_ones(changed):
    own = changed.work / "jobs"
    own.mkdir()

    def restart() -> None:
        overlays = changed.overlays(str(own))
        overlays.begin()
        (own / "spool").write_text("said")
        descriptor = os.open("kept", os.O_WRONLY)
        reading = open("data")  # noqa: SIM115
        overlays.end()
        os.write(descriptor, b"FIRST")
        assert Path("kept").read_text() == "FIRST kept"
        assert reading.read() == "first data"

    in_child(restart)
    assert (own / "spool").read_text() == "said"


def test_a_job_whose_own_folder_is_in_the_working_folder_is_shown_the_past_as_well(place):
    (place.work / "config").write_text("first")
    inside = Place.__new__(Place)
    inside.work, inside.job = place.work, place.work / ".daylight"

    def program() -> None:
        inside.past().begin()
        Path("config").write_text("second")

    in_child(program)

    def restart() -> None:
        overlays = inside.overlays()
        overlays.begin()
        assert Path("config").read_text() == "first"
        overlays.end()
        assert Path("config").read_text() == "second"

    in_child(restart)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user, as only root can; any other user is one already")
def test_a_user_without_privileges_is_shown_the_past_too():
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, _NOBODY, _NOBODY)

        def attempt() -> None:
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            place = Place(Path(folder))
            os.chdir(place.work)
            Path("config").write_text("first")
            place.past().begin()
            os.remove("config")
            Path("made").write_text("made")
            overlays = place.overlays()
            overlays.begin()
            assert os.listdir(".") == ["config"]
            assert os.stat("config").st_uid == _NOBODY
            overlays.end()
            assert os.listdir(".") == ["made"]

        in_child(attempt)


def test_a_rehearsal_is_shown_the_past_and_changes_nothing_outside_of_itself(changed, tmp_path: Path):
    after, beside = tree(changed.work), tree(changed.beside)
    other, port = os.getpid(), socket.create_server(("127.0.0.1", 0))
    (tmp_path / "scratch").mkdir()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    datagrams.setblocking(False)

    def rehearsal() -> None:
        overlays = changed.overlays()
        overlays.begin(tmp_path / "scratch")
        assert (tree(changed.work), tree(changed.beside)) == (FIRST, {"c": "first c"})
        shutil.rmtree("out")
        os.makedirs("out")
        with open("log", "a") as opened:
            overlays.end()
            assert tree(changed.work) == after
            opened.write("more")
        shutil.rmtree(changed.beside)
        Path("made").write_text("made")
        Path("/dev/shm/daylight-rehearsed").write_text("made")
        with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
            database.execute("create table rows (n)")
        folder = os.open(tmp_path, os.O_RDONLY)
        os.close(os.open("native", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        os.waitpid(os.posix_spawn("/bin/rm", ["rm", "-r", str(changed.work / "runs")], os.environ), 0)
        for act in (
            lambda: os.kill(other, signal.SIGKILL),
            lambda: socket.create_connection(port.getsockname()),
            lambda: socket.create_connection(("192.0.2.1", 9), timeout=5),
        ):
            with pytest.raises(OSError, match=r"No such process|refused|unreachable"):
                act()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"said", datagrams.getsockname())

    in_child(rehearsal)
    assert (tree(changed.work), tree(changed.beside)) == (after, beside)
    assert {each.name for each in tmp_path.iterdir()} == {"work", "beside", "job", "scratch"}
    assert not os.path.exists("/dev/shm/daylight-rehearsed")
    with port, datagrams, pytest.raises(BlockingIOError):
        datagrams.recv(4)


def test_the_end_of_a_rehearsal_ends_all_that_it_has_started(changed, tmp_path: Path):
    (tmp_path / "scratch").mkdir()
    reading, writing = os.pipe()

    def rehearsal() -> None:
        changed.overlays().begin(tmp_path / "scratch")
        if not os.fork():
            os.setsid()
            signal.pause()

    in_child(rehearsal)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == ""  # no process is left that holds the other end


def test_a_record_of_another_trial_of_the_same_number_does_not_count(changed):
    other = Past(changed.job / "past", str(changed.work), (), uid="another")
    assert (changed.past().recorded, other.recorded) == (True, False)


def test_where_the_kernel_forbids_namespaces_it_is_said_and_nothing_is_mounted(changed, monkeypatch):
    def forbidden(name: str, *arguments: object) -> None:
        raise PermissionError(1, f"{name}: Operation not permitted")

    monkeypatch.setattr(namespace, "_call", forbidden)
    assert "unshare: Operation not permitted" in changed.overlays().why_not()
    assert not (changed.job / "replay").exists()


def test_a_file_of_another_name_than_at_the_first_start_is_kept_for_the_library_that_holds_the_name(changed):
    def restart() -> None:
        overlays = changed.overlays()
        overlays.begin()
        Path("runs/12:01").mkdir(parents=True)
        Path("runs/12:01/events").write_text("begin")
        Path("out/new").write_text("new")
        overlays.end()
        assert Path("runs/12:01/events").read_text() == "begin"

    in_child(lambda: os.remove("out/new"))
    in_child(restart)
    assert not (changed.work / "out" / "new").exists()


def test_overlays_that_cannot_all_be_mounted_are_removed_again(changed, monkeypatch):
    def fails(overlays: Overlays, sizes: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Overlays, "_cut", fails)

    def restart() -> None:
        with pytest.raises(OSError, match="no space"):
            changed.overlays().begin()
        Path("kept").write_text("real")

    in_child(restart)
    assert (changed.work / "kept").read_text() == "real"


def test_functions_that_another_has_wrapped_meanwhile_stay_wrapped(changed):
    def restart() -> None:
        overlays = changed.overlays()
        overlays.begin()
        os.rename = other = functools.partial(os.rename)
        os.rename("out", "older")
        assert sorted(os.listdir("older")) == ["a", "deep"]
        overlays.end()
        assert os.rename is other

    in_child(restart)


def test_what_a_setup_does_that_goes_otherwise_among_its_own_files_is_named(place):
    (place.work / "out").mkdir()

    def program() -> None:
        past = place.past()
        past.begin()
        sys.path.insert(0, str(place.work))
        with pytest.raises(ImportError):
            importlib.import_module("of_no_such_name")
        assert past.acts() == ""
        os.listdir(".")
        assert past.acts() == "lists ."
        shutil.rmtree("out")
        assert past.acts() == "removes or moves out and lists ."

    in_child(program)


def test_only_what_the_program_changes_of_its_first_files_is_kept(changed):
    kept = changed.job / "past" / "kept" / "0"
    assert set(tree(kept)) == {"out/a", "out/deep/b", "config", "data", "best"}
    past = changed.past()
    assert past.grown == {str(changed.work / "log"): len("first log")}
    assert past.created == {str(changed.beside / "d"): None}


def test_a_folder_of_too_many_files_is_not_listed_and_the_past_is_that_of_what_the_program_did(place, monkeypatch):
    monkeypatch.setattr(listing, "MOST", 2)
    for name in "abc":
        (place.work / name).write_text(name)

    def program() -> None:
        place.past().begin()
        os.remove("a")
        Path("made").write_text("made")

    in_child(program)
    assert place.past().names is None

    def restart() -> None:
        place.overlays().begin()
        assert tree(place.work) == {"a": "a", "b": "b", "c": "c"}

    in_child(restart)


def test_a_change_that_cannot_be_recorded_does_not_end_the_program(place, monkeypatch):
    (place.work / "a").write_text("a")

    def program() -> None:
        place.past().begin()
        shutil.rmtree(place.job)
        place.job.write_text("no folder")
        os.remove("a")
        assert not Path("a").exists()

    in_child(program)


def test_a_program_that_begins_anew_finds_all_as_it_was_and_what_others_made_stays(changed):
    (changed.work / "notes").write_text("of another")
    (changed.work / "runs" / "theirs").write_text("of another")
    left = put_back(changed.past())
    assert tree(changed.work) == {**FIRST, "notes": "of another", "runs/theirs": "of another"}
    assert tree(changed.beside) == {"c": "first c"}
    assert left == [str(changed.work / "runs")]
    assert put_back(changed.past()) == left  # it was killed meanwhile


def test_what_the_training_has_made_since_its_setup_is_undone_too(place):
    (place.work / "kept").write_text("first")

    def program() -> None:
        past = place.past()
        past.begin()
        past.in_setup = False
        os.mkdir("out")
        Path("out/best").write_text("best")
        for name in ("native", "kept"):
            torch.save({}, name)  # in C++
        with h5py.File("rows.h5", "a"):
            pass

    in_child(program)
    assert put_back(place.past()) == []
    assert tree(place.work) == {"kept": "first"}
    assert not (place.work / "out").exists()


def test_a_folder_that_the_program_moved_is_back_and_its_new_place_is_gone(place):
    (place.work / "out").mkdir()
    (place.work / "out" / "a").write_text("a")

    def program() -> None:
        place.past().begin()
        os.rename("out", "older")
        os.mkdir("out")
        Path("out/b").write_text("b")

    in_child(program)
    assert put_back(place.past()) == []
    assert tree(place.work) == {"out/a": "a"}


def test_what_is_too_large_to_be_kept_is_named(place, monkeypatch):
    monkeypatch.setattr("kernel_backend.runner.past.record.LARGEST", 3)
    monkeypatch.setattr("kernel_backend.runner.past.record._cloned", lambda path, there: False)
    (place.work / "large").write_text("first")

    def program() -> None:
        place.past().begin()
        Path("large").write_text("second")

    in_child(program)
    assert put_back(place.past()) == [str(place.work / "large")]


@pytest.mark.parametrize(
    ("looks", "found"),
    [("missed", "ckpt.pt"), ("looked", "ckpt.pt"), ("removed", ""), ("neither", "")],
)
def test_a_program_that_looks_for_what_its_training_has_saved_goes_on_from_it_by_itself(place, looks, found):
    def program() -> None:
        past = place.past()
        past.begin()
        if looks == "missed":
            past.misses(str(place.work / "saved" / "ckpt.pt"))
        elif looks in ("looked", "removed"):
            os.listdir("saved")
        if looks == "removed":
            shutil.rmtree("saved")
            os.mkdir("saved")
        past.misses(str(place.work / "exp1"))
        os.mkdir("exp1")
        past.in_setup = False
        past.misses(str(place.work / "exp1/later"))
        Path("exp1/later").write_text("x")
        Path("saved/ckpt.pt").write_text("saved")

    (place.work / "saved").mkdir()
    in_child(program)
    assert os.path.basename(looks_for(place.past())) == found


def test_a_restart_that_cannot_be_shown_its_past_says_so_in_one_line(place, monkeypatch, capsys):
    def fails(overlays: Overlays) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Overlays, "why_not", lambda overlays: "")
    monkeypatch.setattr(Overlays, "begin", fails)
    monkeypatch.setattr(os, "listdir", lambda path: ["1"])
    in_child(place.past().begin)
    monkeypatch.setattr(replay, "past_of", lambda job, attempt: place.past())
    monkeypatch.setattr(replay, "overlays_of", lambda job, past, rank: place.overlays())
    replay.enter(SimpleNamespace(resume_from="1"), 0, place.job)  # type: ignore[arg-type]
    assert replay.entered() is None
    said = "daylight: the setup sees its files of today, not those of its start: OSError: no space\n"
    assert capsys.readouterr().err == said


def test_what_the_training_has_removed_since_its_checkpoint_is_there_again(place):
    for name in "abc":
        (place.work / name).write_text(name)

    def program() -> None:
        past = place.past()
        past.begin()
        past.in_setup = False
        for name in "abc":
            past.at_checkpoint()
            os.remove(name)
        Path("c").write_text("made anew")

    in_child(program)
    past = place.past()
    assert past.count == 3
    past.bring_back(1)
    assert tree(place.work) == {"b": "b", "c": "made anew"}
    assert not (place.job / "past" / "taken" / "0").exists()  # no checkpoint that is kept needs it
