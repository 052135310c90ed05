"""Test that programs resumed at any loop head end like uninterrupted ones, with the bits of plain Python."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch._dynamo  # noqa: F401  # once, not in each forked process

from kernel_backend.runner.forms.script.state.graph import GraphWriter
from tests.support.script_runs import run

HEADER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(24, 4)
data = TensorDataset(x, (x.sum(1) > 0).long())
def made(): return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 2))
"""
NESTED = """
model, criterion = made(), nn.CrossEntropyLoss()
opt = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
loader, history = DataLoader(data, batch_size=8, shuffle=True), []
for epoch in range(3):
    for i, (a, b) in enumerate(loader):
        opt.zero_grad()
        loss = criterion(model(a), b)
        loss.backward()
        opt.step()
        history.append(loss.item())
    schedule.step()
    print(epoch, loss.item(), schedule.get_last_lr())
"""
FUNCTIONS = """
class Trainer:
    seen = 0
    def __init__(self, model):
        self.model, self.opt = model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.best, self.step = None, 0
    def fit(self, epochs):
        while self.step < epochs * 3:
            self.epoch()
            if self.best is None or self.last < self.best:
                self.best, self.state = self.last, {k: v.clone() for k, v in self.model.state_dict().items()}
    def epoch(self):
        for a, b in DataLoader(data, batch_size=8, shuffle=True):
            scale = lambda value: value * factor
            factor = 1 + self.step
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.model(a), b)
            scale(loss).backward()
            self.opt.step()
            self.step += 1
            Trainer.seen += len(a)
        self.last = loss.item()
def main():
    trainer = Trainer(made())
    trainer.fit(2)
    return trainer
if __name__ == "__main__":
    trainer = main()
    print(trainer.best, Trainer.seen)
"""
FOLDS = """
scores = []
def train(model, rows):
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(9):
        loss = nn.functional.cross_entropy(model(x[rows]), data.tensors[1][rows])
        loss.backward()
        opt.step()
        opt.zero_grad()
        if loss.item() < 0.6:
            return epoch, loss.item()
    else:
        return -1, loss.item()
for fold in range(2):
    model = made()
    scores.append(train(model, list(range(fold, 24, 2))))
    print("fold", fold, scores[-1])
other = made()
opt = torch.optim.Adagrad(other.parameters())
while len(scores) < 5:
    try:
        opt.zero_grad()
        other(x).square().mean().backward()
        opt.step()
        if len(scores) == 3:
            continue
    finally:
        scores.append(float(other(x).sum()))
print(scores)
"""
FILES = """
import csv, os
from pathlib import Path
os.makedirs("out/logs")
if os.path.exists("out/mine.pt"):
    raise SystemExit("goes on from a checkpoint of its own")
Path("out/settings.txt").write_text("lr = 0.1")
print(Path("out/settings.txt").read_text())
log = open("out/logs/steps.csv", "w", newline="")
writer = csv.writer(log)
writer.writerow(["step", "loss"])
model = made()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for step, (a, b) in enumerate(DataLoader(data, batch_size=8, shuffle=True)):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        opt.step()
        writer.writerow([step, loss.item()])
    with open("out/epochs.txt", "a") as file:
        file.write(f"{epoch} {loss.item()}\\n")
    torch.save(model.state_dict(), "out/mine.pt")
log.close()
for line in open("out/epochs.txt"):
    opt.zero_grad()
    (nn.functional.cross_entropy(model(x), data.tensors[1]) * float(line.split()[1])).backward()
    opt.step()
    print(line.strip())
"""

MADE_MODULE = """
import sys, types
state = types.ModuleType("state")
state.step, state.best, state.model = 0, 9.0, made()
sys.modules["state"] = state
def update(value):
    import state as held
    held.step += 1
    held.best = min(held.best, value)
opt = torch.optim.SGD(state.model.parameters(), lr=0.1)
for step in range(9):
    opt.zero_grad()
    loss = state.model(x).square().mean() * state.step
    loss.backward()
    opt.step()
    update(loss.item())
    print(state.step, state.best)
"""

# Classes that are made at run time, and one with a cache of its subclasses in native code.
CLASSES = """
from abc import ABC
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
class Scale(ABC):
    taken = 0
class Double(Scale): pass
model = nn.Sequential(spectral_norm(nn.Linear(4, 4)), weight_norm(nn.Linear(4, 2)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    opt.zero_grad()
    loss = model(x).square().mean() * (2 if isinstance(Double(), Scale) else 1)
    loss.backward()
    opt.step()
    Scale.taken += 1
    print(step, loss.item(), Double.taken, type(model[0]).__name__)
"""


@pytest.mark.parametrize(
    "source",
    [NESTED, FUNCTIONS, FOLDS, FILES, MADE_MODULE, CLASSES],
    ids=["nested", "functions", "folds", "files", "made module", "classes"],
)
def test_a_program_resumed_at_any_head_ends_as_plain_python_does(tmp_path, source):
    plain, form = tmp_path / "plain" / "program.py", tmp_path / "form" / "program.py"
    for path in (plain, form):
        path.parent.mkdir()
        path.write_text(HEADER + source)
    expected = run(plain, rewritten=False)
    whole = run(form, save_at=range(1, 100))
    assert (expected.error, whole.error, whole.notes) == ("", "", [])
    assert (whole.printed, whole.values) == (expected.printed, expected.values)
    assert len(whole.checkpoints) >= 6
    for head in sorted(whole.checkpoints)[:: len(whole.checkpoints) // 4]:
        resumed = run(form, checkpoint=whole.checkpoints[head])
        assert (resumed.error, resumed.notes) == ("", []), head
        assert (resumed.printed, resumed.values) == (expected.printed, expected.values), head
        assert set(resumed.files) == set(expected.files)
        assert _texts(resumed.files) == _texts(expected.files), head


TRAIN = """
from functools import reduce
model, seen = made(), []
def train(rate, steps=2):
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), data.tensors[1])
        loss.backward()
        opt.step()
        seen.append(loss.item())
        if step == 2:
            return loss.item()
    return loss.item()
"""
CALLS = {
    "one after another": "train(0.1)\nlast = train(0.01, 4)\nprint(seen, last)",
    "in a comprehension": "losses = [train(rate) for rate in (0.1, 0.01, 0.001)]",
    "by a library": "total = reduce(lambda before, rate: before + train(rate), (0.1, 0.01, 0.001), 0)",
    "after a loop of calls": "for rate in (0.1, 0.01): train(rate)\ntrain(0.001, 3)",
    "by a function that calls itself": "def again(n):\n    train(0.1)\n    if n: again(n - 1)\nagain(2)",
    "twice in an iteration": "for rate in (0.1,):\n    train(rate)\n    train(rate / 2)",
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_a_function_that_trains_is_resumed_in_its_last_call(tmp_path, calls):
    path = tmp_path / "form" / "program.py"
    path.parent.mkdir()
    path.write_text(HEADER + TRAIN + calls)
    expected = run(path, rewritten=False)
    whole = run(path, save_at=range(1, 100), always=False)
    assert (whole.error, whole.notes, whole.values) == ("", [], expected.values)
    last = max(each for each in whole.checkpoints if each < whole.heads)
    assert last >= whole.heads - 2  # the last iterations are those of the last call and of a loop around it
    resumed = run(path, checkpoint=whole.checkpoints[last], always=False)
    assert (resumed.error, resumed.notes, resumed.values) == ("", [], expected.values)


TURNS = """
def training(rate):
    for batch in x.split(12):
        model(batch).square().mean().backward()
        yield rate
losses = list(zip(training(0.1), training(0.2)))
"""
CAUGHT = """
kept, seen = seen, None
try:
    train(0.1)
except AttributeError:
    seen = kept
train(0.1)
"""


@pytest.mark.parametrize(
    ("calls", "note"),
    [
        (TURNS, "had come to its end (an exception or a generator): no checkpoint"),
        (CAUGHT, "had come to its end (an exception or a generator): no checkpoint"),
        ("losses = [train(0.1, 1) for _ in range(18)]", "16 training loops have ended one after another"),
    ],
    ids=["generators", "an exception", "many calls"],
)
def test_loops_after_which_no_checkpoint_is_possible_are_named(tmp_path, calls, note):
    path = tmp_path / "form" / "program.py"
    path.parent.mkdir()
    path.write_text(HEADER + TRAIN + calls)
    expected = run(path, rewritten=False)
    whole = run(path, save_at=range(1, 100))
    assert (whole.error, whole.values) == ("", expected.values)
    assert [note in each for each in whole.notes] == [True]


# Nothing says how far an iterator of a library is: without its position, its first items would come again.
RATES = """
from itertools import chain, count, islice, repeat
model = made()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rates = MADE
for step in range(8):
    opt.param_groups[0]["lr"] = next(rates)
    model(x).square().mean().backward()
    opt.step()
print(opt.param_groups[0]["lr"])
"""


@pytest.mark.parametrize(
    "made", ["chain(repeat(0.1, 3), (0.1 / n for n in count(1)))", "islice((0.1 / n for n in count(1)), 9)"]
)
def test_an_iterator_whose_position_cannot_be_saved_is_never_begun_again(tmp_path, made):
    path = tmp_path / "program.py"
    path.write_text(HEADER + RATES.replace("MADE", made))
    whole = run(path, save_at=[5])
    assert whole.error == ""
    resumed = run(path, checkpoint=whole.checkpoints[5])
    assert "rates" in resumed.error
    assert "could not be saved" in resumed.error


# A pipe can be pickled, with the numbers that it has in its process: in another one they may be those of any file.
PIPE = """
import io, os
from multiprocessing import Pipe
if "AGAIN" in os.environ:
    [os.dup(1) for _ in range(4)]
here, there = Pipe()
said = io.StringIO()
model = made()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    here.send(step)
    (model(x).square().mean() * there.recv()).backward()
    opt.step()
    said.write(f"{step} ")
print(model(x).sum().item(), said.getvalue())
"""


def test_a_pipe_is_the_one_that_the_restarted_program_has_made(tmp_path, monkeypatch):
    path = tmp_path / "program.py"
    path.write_text(HEADER + PIPE)
    whole = run(path, save_at=[5])
    monkeypatch.setenv("AGAIN", "1")
    resumed = run(path, checkpoint=whole.checkpoints[5])
    assert (whole.error, resumed.error) == ("", "")
    assert resumed.printed == whole.printed


def _texts(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith((".txt", ".csv"))}


def test_objects_of_a_library_that_hold_each_other_are_tried_once(monkeypatch: pytest.MonkeyPatch):
    tried: list[bool] = []
    begin = GraphWriter.__init__

    def count(self: GraphWriter, *args: Any, **options: Any) -> None:
        tried.append(options.get("trial", False))
        begin(self, *args, **options)

    monkeypatch.setattr(GraphWriter, "__init__", count)
    ring = [SimpleNamespace(number=number) for number in range(50)]
    for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        one.next = other
    names = {"ring": ring[0], "lock": threading.Lock(), "held": SimpleNamespace(lock=threading.Lock(), ring=ring[1])}
    GraphWriter({"": names}).write({"root": names}, {})
    assert sum(tried) == 3  # of the ring, of a lock, and of what holds a lock
