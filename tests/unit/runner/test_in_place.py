"""Test that the guarantee names files which a restart would not put back before a kill, and no other files."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_backend.model.reports import Guarantee
from kernel_backend.runner.past import namespace
from kernel_backend.runner.past.in_place import InPlace
from kernel_backend.runner.past.record import Past
from tests.support.script_attempts import Job

_WRITTEN = "a restart does not undo what was written to {} after its checkpoint"


def table(name: str = "runs.db") -> sqlite3.Connection:
    made = sqlite3.connect(name, uri=True)
    made.execute("create table if not exists runs (n)")
    made.commit()
    return made


def insert(into: sqlite3.Connection) -> None:
    into.execute("insert into runs values (1)")
    into.commit()


def log_of_writes_ahead() -> sqlite3.Connection:
    made = table()
    made.execute("pragma journal_mode=wal")
    return made


def mapped(access: int) -> mmap.mmap:
    Path("x.bin").write_bytes(bytes(16))
    with open("x.bin", "r+b" if access == mmap.ACCESS_WRITE else "rb") as file:
        return mmap.mmap(file.fileno(), 16, access=access)


def opened(path: str, flags: int = os.O_WRONLY | os.O_APPEND) -> int:
    os.makedirs("data", exist_ok=True)
    return os.open(path, flags | os.O_CREAT)


def counted(of: object = None, mode: str = "") -> None:
    with open("count", mode or "r") as file:
        number = int(file.read())
        if mode:
            file.seek(0)
            file.write(str(number + 1))
    if not mode:
        Path("count").write_text(str(number + 1))


def row(mode: str = "a", of: object = None) -> None:
    import h5py

    with h5py.File("rows.h5", mode) as file:
        file.attrs["rows"] = file.attrs.get("rows", 0) + 1


def anything(of: object = None) -> None:
    pass


def look(folder: Path, monkeypatch: pytest.MonkeyPatch, setup: Callable[[], object], step: Callable[..., object]):
    """Return what is said at the first training loop, and after a step."""
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    said = folder / "said"

    def program() -> None:
        past = Past(folder / "past", os.getcwd(), ())
        past.begin()
        seen = InPlace(past, lambda: [os.path.abspath("followed.log")])
        held = setup()
        past.in_setup = False
        first = [*seen.begin(), *seen.checkpoint()]
        step(held)
        second = seen.written()
        assert seen.checkpoint() == []
        said.write_text("\n".join(["; ".join(first), "; ".join(second)]))

    assert namespace.works(program) == ""
    return said.read_text().split("\n")


@pytest.mark.parametrize(
    ("setup", "step", "first", "second"),
    [
        (table, insert, "", "runs.db"),
        (log_of_writes_ahead, insert, "", "runs.db"),
        (lambda: table().close(), lambda _: insert(table("file:runs.db")), "", "runs.db"),
        (anything, lambda _: table(), "", "runs.db"),
        (lambda: mapped(mmap.ACCESS_WRITE), anything, "x.bin", ""),
        (lambda: opened("x.log"), anything, "x.log", ""),
        (lambda: opened("data/x.h5", os.O_RDWR), anything, "data/x.h5", ""),
        (lambda: Path("count").write_text("1"), counted, "", "count"),
        (lambda: Path("count").write_text("1"), lambda _: counted(mode="r+"), "", "count"),
        (lambda: row("w"), lambda _: row("r+"), "", "rows.h5"),
        (anything, lambda _: row(), "", "rows.h5"),
    ],
)
def test_what_a_restart_would_not_undo_is_named(tmp_path, monkeypatch, setup, step, first, second):
    said = look(tmp_path, monkeypatch, setup, step)
    assert said == [each and _WRITTEN.format(each) for each in (first, second)]


@pytest.mark.parametrize(
    ("setup", "step"),
    [
        (lambda: [table(), insert(table())][0], lambda db: db.execute("select * from runs").fetchall()),
        (table, lambda _: [sqlite3.connect("file:runs.db?mode=ro", uri=True), sqlite3.connect(":memory:")]),
        (lambda: mapped(mmap.ACCESS_COPY), lambda made: made.__setitem__(0, 1)),
        (lambda: opened("followed.log"), anything),
        (lambda: opened("data/lock.mdb", os.O_RDWR), anything),
        (lambda: os.open("/dev/null", os.O_RDWR), anything),
        (lambda: None, lambda _: Path("best.pt").write_text("best")),
        (lambda: None, lambda _: [Path("best.pt").write_text("best"), Path("best.pt").read_text()]),
        (lambda: None, lambda _: [Path("count").write_text("1"), counted()]),  # a restart makes it again
        (row, lambda _: [row("w"), row()]),
        (lambda: [Path("count").write_text("1"), counted()], lambda _: Path("count").read_text()),
    ],
)
def test_what_is_only_read_or_put_back_is_not_named(tmp_path, monkeypatch, setup, step):
    assert look(tmp_path, monkeypatch, setup, step) == ["", ""]


@pytest.mark.parametrize(("made_anew", "named"), [(False, ["count"]), (True, [])])
def test_a_file_read_before_a_checkpoint_that_may_not_be_committed_is_named(tmp_path, monkeypatch, made_anew, named):
    """A restart may go on from the checkpoint before, and read the file again, or make it before it reads it."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def program() -> None:
        past = Past(tmp_path / "past", os.getcwd(), ())
        past.begin()
        Path("count").write_text("1")
        past.at_checkpoint()
        if made_anew:
            Path("count").write_text("2")
        Path("count").read_text()
        past.at_checkpoint()
        Path("count").write_text("3")
        (tmp_path / "said").write_text(" ".join(map(os.path.basename, past.rewritten)))

    assert namespace.works(program) == ""
    assert (tmp_path / "said").read_text().split() == named


def test_a_save_for_which_the_setup_looks_is_named(tmp_path, monkeypatch):
    said = look(tmp_path, monkeypatch, lambda: os.listdir("."), lambda _: Path("best.pt").write_text("best"))
    assert said == ["", "a restart without a checkpoint leaves best.pt, for which the setup looks"]


def saved_by_replacement() -> None:
    Path("aside").write_text("1")
    os.replace("aside", "best")
    os.makedirs("made/deep")
    os.removedirs("made/deep")
    os.remove("best")


@pytest.mark.parametrize(
    ("step", "gone"),
    [(lambda: os.remove("old"), ""), (lambda: os.rename("old", "old.1"), "old"), (saved_by_replacement, "")],
)
def test_what_the_training_moves_is_named_if_a_restart_expects_it(tmp_path, monkeypatch, step, gone):
    said = look(tmp_path, monkeypatch, lambda: Path("old").write_text("old"), lambda _: step())
    told = f"a restart does not bring back {gone}, removed or moved after its checkpoint"
    assert said == ["", told if gone else ""]


_EMPTIES = """
import os, shutil, torch
from torch import nn
shutil.rmtree("out")
os.makedirs("out")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    torch.save(step, f"out/{step}")
print(sorted(os.listdir("out")))
"""


def _without_namespaces(_: object) -> None:
    """Have the kernel refuse `unshare` to this process, by a filter as that of a container (seccomp)."""
    errors, jump, give, load = 0x00050000 | errno.EPERM, 0x15, 0x06, 0x20
    number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
    lines = ((load, 0, 0, 0), (jump, 0, 1, number), (give, 0, 0, errors), (give, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in lines))
    filters = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(code)))
    kernel = ctypes.CDLL(None)
    assert (kernel.prctl(38, 1, 0, 0, 0), kernel.prctl(22, 2, filters, 0, 0)) == (0, 0)


def test_where_there_are_no_namespaces_the_guarantee_has_it_before_the_first_kill_and_the_log_once(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    job = Job(tmp_path, _EMPTIES, options={"epochs": 5, "rehearse": True})
    killed = job.run(_without_namespaces, killed_at=2)
    (limited,) = [each.text for each in killed.records if isinstance(each, Guarantee)]
    assert limited.startswith("presumed exact to the step, but a restart sees its files as they are then; the setup")
    last = job.run(_without_namespaces)
    assert (last.started.guarantee, killed.notes + last.notes) == (limited, [])
    assert (last.log.count("a restart is not rehearsed"), last.log.count("['0', '1', '2', '3', '4']")) == (1, 1)


PROGRAM = """
import sqlite3, torch
from torch import nn
db = sqlite3.connect("runs.db")
db.execute("create table runs (n)")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    db.execute("insert into runs values (1)")
    db.commit()
"""


def test_the_guarantee_has_it_before_the_first_kill_and_so_has_the_next_attempt(tmp_path):
    job = Job(tmp_path, PROGRAM, options={"epochs": 5})
    killed = job.run(killed_at=1)
    limited = f"presumed exact to the step, but {_WRITTEN.format('runs.db')}"
    assert [each.text for each in killed.records if isinstance(each, Guarantee)] == [limited]
    assert killed.started.guarantee == "presumed exact to the step"
    assert job.run().started.guarantee == limited
