"""Test attempts of a program with a training loop: where a restart begins, and that what watches costs only itself."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_backend.model.reports import Guarantee, Report
from kernel_backend.runner.forms.script import training
from kernel_backend.runner.forms.script.training import ScriptTraining
from kernel_backend.runner.forms.script.watchers import Watchers
from tests.support.script_attempts import Ended, Job
from tests.support.script_runs import run

# A thread's place in its work is saved nowhere: a restart from a checkpoint would train on its batches twice.
QUEUE = """
import queue
import threading
import torch
from torch import nn
batches = queue.Queue()
def fill():
    for number in range(12):
        batches.put(number / 12)
    batches.put(None)
threading.Thread(target=fill, daemon=True).start()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
while (batch := batches.get()) is not None:
    loss = (model(torch.randn(8, 4)) - batch).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    steps += 1
print("end", steps, loss.item())
"""


def plain(folder: Path, source: str) -> str:
    """Return what plain Python prints for a program."""
    (folder / "plain").mkdir()
    (folder / "plain" / "train.py").write_text(source)
    return run(folder / "plain" / "train.py", rewritten=False).printed


@pytest.mark.parametrize("reproducible", ["host", "off"])
def test_a_program_presumed_from_the_start_begins_anew_after_a_kill(tmp_path: Path, reproducible: str):
    job = Job(tmp_path / "job", QUEUE, options={"reproducible": reproducible})
    first = job.run(killed_at=5)
    assert first.code == -9, first.log
    told = {
        "host": "presumed from the start, with the same bits: ",
        "off": "not reproducible: --reproducible off; a kill costs the whole run: ",
    }
    assert first.started.guarantee == f"{told[reproducible]}Thread(...) is a thread next to the loop, line 11"
    second = job.run()
    assert (second.code, second.started.resumed_from) == (0, None), second.log
    assert second.log == plain(tmp_path, QUEUE)


# A library that calls the program back, and goes on with its own objects.
LIBRARY = """
class Study:
    def __init__(self, values=()):
        self.values, self.reported = list(values), []
    def optimize(self, objective, trials):
        for number in range(trials):
            trial = Trial(self, number)
            self.values.append((objective(trial), trial.last))
class Reduced(Study):
    def __reduce__(self):
        return Reduced, (self.values,)
class Trial:
    __slots__ = ("study", "number", "last")
    def __init__(self, study, number):
        self.study, self.number, self.last = study, number, None
    def report(self, value):
        self.last = value
        self.study.reported.append(value)
"""
SEARCH = """
import searching, torch
from torch import nn
torch.manual_seed(0)
def objective(trial):
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1 / (1 + trial.number))
    for step in range(4):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        trial.report(loss.item())
    return loss.item()
study = searching.KIND()
study.optimize(objective, 3)
print(study.values, study.reported)
"""


@pytest.mark.parametrize(("kind", "begins"), [("Study", "3-1"), ("Reduced", None)])
def test_an_object_that_a_calling_library_holds_stays_one_object_or_is_told(tmp_path: Path, monkeypatch, kind, begins):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "searching.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "library")
    source = SEARCH.replace("KIND", kind)
    job = Job(tmp_path / "job", source, options={"epochs": 4})
    first = job.run(killed_at=3)
    guarantees = [each.text for each in first.records if isinstance(each, Guarantee)]
    why = "study is also held by functions of its library, which call the loop"
    assert guarantees == ([] if begins else [f"presumed from the start, with the same bits: {why}"])
    second = job.run()
    assert (second.code, second.started.resumed_from) == (0, begins), second.log
    assert second.log == plain(tmp_path, source)


# In its fifth step it makes an object of a class that a later process does not find, and goes on without it.
LATE = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
box = None
try:
    for step in range(9):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step == 4:
            try:
                from late import Box
                box = Box()
            except ImportError:
                pass
except Exception as error:
    print("swallowed", error)
print("end", loss.item())
"""


def damage(job: Job):
    for part in (job.folder / "checkpoints" / "5-1").glob("program*"):
        part.write_bytes(part.read_bytes()[:-8] + bytes(8))


def lose_class(job: Job):
    (job.folder / "late.py").unlink()


def lose_field(training: ScriptTraining):
    """Save what an older version may have saved: the part of the fifth step lacks a field."""
    state = training._part.state_dict
    lost = {"first"}
    training._part.state_dict = lambda: {
        name: each for name, each in state().items() if training.step != 5 or name not in lost
    }


@pytest.mark.parametrize(
    ("watch", "harm", "told"),
    [
        (id, id, ""),
        (id, damage, ""),
        (id, lose_class, "checkpoint 5-1: its checkpoint cannot be read, ModuleNotFoundError: No module named 'late'"),
        (lose_field, id, "checkpoint 5-1: its checkpoint cannot be read, KeyError: 'first'"),
    ],
    ids=["nothing is wrong", "damaged file", "missing class", "other version"],
)
def test_a_checkpoint_that_cannot_be_read_falls_back_to_an_older_one(tmp_path: Path, watch, harm, told: str):
    job = Job(tmp_path / "job", LATE, options={"epochs": 9})
    (job.folder / "late.py").write_text("class Box: pass")
    first = job.run(watch, killed_at=5)
    assert (first.code, job.home.committed()[-1].id) == (-9, "5-1"), first.log
    harm(job)
    if told:
        second = job.run()
        assert (second.code, told in second.log, "swallowed" in second.log) == (1, True, False), second.log
        assert job.home.committed()[-1].id == "4-1"
    last = job.run()
    assert (last.code, last.started.resumed_from) == (0, "5-1" if watch is harm else "4-1"), last.log
    (job.folder / "late.py").unlink(missing_ok=True)
    assert last.log == plain(tmp_path, LATE)


WATCHED = """
import sqlite3
import torch
from torch import nn
from tqdm import tqdm
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
bar = tqdm(range(3), disable=True)
database = sqlite3.connect("runs.db")
for step in bar:
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    bar.set_postfix(loss=loss.item())
    print("loss", loss.item())
print("end", sum(each.sum().item() for each in model.parameters()))
"""


class Broken:
    """Function that raises in the place of another one."""

    def __init__(self, watch: Callable[..., object]) -> None:
        self.__self__ = getattr(watch, "__self__", watch)
        self.__qualname__ = watch.__qualname__

    def __call__(self, *_: object) -> None:
        raise RuntimeError("broken")


def watched(folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str = "") -> tuple[Ended, Job, set[str]]:
    """Train, and return the names of the functions that watched; that called `broken` raises."""
    names = os.open(folder / f"names{broken}", os.O_RDWR | os.O_CREAT)
    call = Watchers.call

    def calls(self: Watchers, watch: Callable[..., object], *given: object) -> object:
        os.write(names, f"{watch.__qualname__}\n".encode())
        return call(self, Broken(watch) if watch.__qualname__ == broken else watch, *given)

    monkeypatch.setattr(Watchers, "call", calls)
    job = Job(folder / f"job{broken}", WATCHED, options={"epochs": 3, "rehearse": True})
    ended = job.run()
    monkeypatch.undo()
    return ended, job, set(os.pread(names, 10**6, 0).decode().split())


WATCHING = {
    "Curves", "Curves.backward", "Curves.close", "Curves.finish", "Curves.iteration", "Curves.output",
    "InPlace.begin", "InPlace.checkpoint", "InPlace.written", "NamedModules.iteration", "OwnEpochs.backward",
    "Recorder._iteration", "Recorder._step", "Rehearsal.close", "Rehearsal.step", "Rehearsal.taken",
    "ScriptTraining._put_files_back", "ScriptTraining._say_weights", "ScriptTraining._separate_losses",
    "Trackers.take",
}  # fmt: skip


def test_whatever_watches_a_program_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, job, names = watched(tmp_path, monkeypatch)
    assert whole.code == 0, whole.log
    assert names == WATCHING  # what is added here is tried below
    saved = [each.id for each in job.home.committed()]
    for name in sorted(names):
        ended, job, _ = watched(tmp_path, monkeypatch, name)
        assert (ended.code, ended.log) == (0, whole.log), name
        assert f"{name} raised RuntimeError: broken; the training goes on without it" in ended.notes
        assert ended.started.guarantee == whole.started.guarantee
        assert job.home.committed()[-1].id == saved[-1], name


def test_nothing_that_watches_is_called_past_the_guard():
    tree = ast.parse(Path(training.__file__).read_text())
    calls = {ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
    found = {each for each in calls if each.startswith(("self._curves.", "self.recorder.", "self.rehearsal."))}
    guarantee = {"allows", "begin_anew", "limit", "state"}
    assert found == {f"self.rehearsal.{each}" for each in guarantee}


# Two trainings in one program, whose curves have the same names.
DISTILLATION = """
import torch
from torch import nn
torch.manual_seed(0)
batches = [torch.randn(8, 4) for _ in range(2)]
def fit(net, epochs):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x in batches:
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
        print(f"val_loss: {loss.item()}")
teacher, student = nn.Linear(4, 1), nn.Linear(4, 1)
fit(teacher, 3)
print("test_acc: 0.9")
fit(student, 2)
print("test_acc: 0.8")
"""


# The same two trainings as folds, in one loop.
FOLDS = (
    DISTILLATION[: DISTILLATION.index("teacher")]
    + """
for fold, epochs in enumerate([3, 2]):
    fit(nn.Linear(4, 1), epochs)
    print(f"test_acc: {0.9 - fold / 10}")
"""
)


def epochs_of(ended: Ended, kind: str, name: str) -> list[tuple[int, float]]:
    """Return step and epoch of each report of a value."""
    reports = [each for each in ended.records if isinstance(each, Report) and each.kind == kind]
    return list(dict.fromkeys((each.step, each.epoch) for each in reports if name in each.metrics))


def test_the_curves_of_a_second_training_count_its_own_epochs_also_after_a_kill(tmp_path: Path):
    whole = Job(tmp_path / "whole", DISTILLATION).run()
    teacher, student = [(2, 1), (4, 2), (6, 3)], [(8, 1), (10, 2)]
    assert epochs_of(whole, "validation", "val_loss") == teacher + student, whole.log
    steps = [(step, step / 2) for step in range(1, 7)] + [(step + 6, step / 2) for step in range(1, 5)]
    assert epochs_of(whole, "training", "loss") == steps
    assert epochs_of(whole, "validation", "test_acc") == [teacher[-1], student[-1]]
    killed = Job(tmp_path / "killed", DISTILLATION)
    assert killed.run(killed_at=6).code == -9
    second = killed.run()
    assert (second.code, second.started.resumed_from) == (0, "7-1"), second.log
    assert epochs_of(second, "training", "loss")[-3:] == steps[-3:]
    assert epochs_of(second, "validation", "val_loss")[-2:] == student


def test_the_curves_of_each_fold_count_its_own_epochs_also_after_a_kill(tmp_path: Path):
    job = Job(tmp_path / "folds", FOLDS)
    first = job.run(killed_at=7)
    second = job.run()
    assert (first.code, second.code, second.started.resumed_from) == (-9, 0, "8-1"), second.log
    steps = [(step, step / 2) for step in range(1, 7)] + [(step + 6, step / 2) for step in range(1, 5)]
    assert epochs_of(first, "training", "loss")[:8] == steps[:8]
    assert epochs_of(second, "training", "loss") == steps[-2:]
    assert epochs_of(first, "validation", "val_loss")[:3] == [(2, 1), (4, 2), (6, 3)]
    assert epochs_of(second, "validation", "val_loss")[-1:] == epochs_of(second, "validation", "test_acc") == [(10, 2)]
