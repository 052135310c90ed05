"""Test that a capture ends soon whatever the cells are, and that its assumptions are safe where it gives up."""

from __future__ import annotations

import numpy
import pytest

from jupyter_ext.capture import capture_cell
from jupyter_ext.capture.follow import abstract_state
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.effects import Follower
from jupyter_ext.capture.follow.members import extended, lacks
from jupyter_ext.capture.statements import analyse
from tests.torture.notebooks import run

pytestmark = pytest.mark.timeout(120)

LEARNER = """
class Recorder:
    def before_fit(self, learn): self.losses, self.lrs = [], []
    def after_batch(self, learn):
        if learn.model.training: self.losses.append(learn.loss.item()); self.lrs.append(learn.opt.groups[0]['lr'])
class Sched:
    def before_fit(self, learn): self.s = optim.lr_scheduler.OneCycleLR(learn.opt, 0.02, learn.n_epochs)
    def after_batch(self, learn):
        if learn.model.training: self.s.step()
class Learner:
    def __init__(self, model, dls, loss_func, lr, cbs, opt_func=optim.Adam):
        self.model, self.dls, self.loss_func = model, dls, loss_func
        self.lr, self.cbs, self.opt_func = lr, cbs, opt_func
    def callback(self, nm):
        for cb in self.cbs:
            f = getattr(cb, nm, None)
            if f: f(self)
    def one_batch(self):
        self.xb, self.yb = self.batch
        self.preds = self.model(self.xb)
        self.loss = self.loss_func(self.preds, self.yb)
        if self.model.training:
            self.loss.backward()
            self.opt.step()
            self.opt.zero_grad()
        n = len(self.xb)
        self.tot += n; self.sl += self.loss.item()*n; self.sa += (self.preds.argmax(1)==self.yb).float().sum().item()
    def one_epoch(self, train):
        self.model.train(train)
        dl = self.dls.train if train else self.dls.valid
        self.tot, self.sl, self.sa = 0, 0., 0.
        for self.num, self.batch in enumerate(dl):
            self.one_batch()
            self.callback('after_batch')
        print(self.epoch, f'loss {self.sl/self.tot:.3f} acc {self.sa/self.tot:.3f} n {self.tot}')
    def fit(self, n_epochs):
        self.n_epochs = n_epochs
        self.opt = self.opt_func(self.model.parameters(), self.lr)
        self.callback('before_fit')
        for self.epoch in range(n_epochs):
            self.one_epoch(True)
            self.one_epoch(False)
"""
TRAIN = """rec = Recorder()
learn = Learner(nn.Linear(64, 10), dls, F.cross_entropy, lr=0.01, cbs=[rec, Sched()])
learn.fit(3)
"""
LOADED = "import torch.nn as nn, torch.nn.functional as F\nfrom torch import optim\ndls = object()"
NOT_LOADED = "import nets as nn, nets.functional as F\nfrom nets import optim\ndls = object()"
STREAM = """import torch
class Stream(torch.utils.data.IterableDataset):
    def __init__(self, n, seed): self.n, self.seed = n, seed
    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for i in range(self.n):
            x = torch.randn(8, generator=g)
            yield x, (x.sum() > 0).long()
train_dl, valid_dl = [torch.utils.data.DataLoader(Stream(640, seed), batch_size=32) for seed in (0, 1)]
"""
OVER_A_STREAM = """net = torch.nn.Linear(8, 2)
opt = torch.optim.Adam(net.parameters(), 1e-2)
ce = torch.nn.CrossEntropyLoss()
for epoch in range(4):
    n_train = 0
    for xb, yb in train_dl:
        l = ce(net(xb), yb)
        opt.zero_grad(); l.backward(); opt.step()
        n_train += len(xb)
    good, n = 0, 0
    with torch.no_grad():
        for xb, yb in valid_dl:
            good += int((net(xb).argmax(-1) == yb).sum()); n += len(xb)
"""


def limited(monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    """Let each statement look at `work` objects only."""
    for name in ("_WORK", "_WORK_OF_ONE", "_LEAST_WORK"):
        monkeypatch.setattr(abstract_state, name, work)


def state_after(*cells: str) -> AbstractState:
    follower = Follower()
    for cell in cells:
        for statement in analyse(cell)[1]:
            follower.run(statement, displayed=False)
    return follower._state


@pytest.mark.parametrize("imports", [LOADED, NOT_LOADED], ids=["loaded packages", "packages that are not loaded"])
def test_members_of_packages_stay_few_in_a_learner_with_callbacks(imports: str):
    state = state_after(imports, LEARNER, TRAIN)
    assert len(state._packages) < 1000  # before: 400,000 when it had got a third of the way


def test_a_learner_with_callbacks_is_followed_to_its_end():
    capture = capture_cell([LOADED, LEARNER], TRAIN)
    assert capture.problems == ()
    assert not any("too intricate" in each for each in capture.warnings)


def test_a_loop_over_a_stream_with_a_generator_ends():
    assert capture_cell([STREAM], OVER_A_STREAM).problems == ()


def test_a_statement_that_is_too_intricate_is_named_and_counts_as_changing_all_that_it_reaches(
    monkeypatch: pytest.MonkeyPatch,
):
    cells = ["rows = [1]\nother = [2]\nhub = [rows]", "for each in hub: print(each, sum(each), len(each))"]
    use = "def train_data(): return rows, other"
    capture = capture_cell(cells, use)
    assert "for each" not in capture.source
    assert capture.warnings == ()
    limited(monkeypatch, 20)
    capture = capture_cell(cells, use)
    assert "for each in hub" in capture.source
    assert [each for each in capture.warnings if "too intricate" in each] == [
        "cell [2] line 1 is too intricate to follow: it counts as changing all that it can reach, so more cells may "
        "travel than it needs, and fewer values are compared"
    ]


def test_the_submitted_cell_is_named_by_its_own_line(monkeypatch: pytest.MonkeyPatch):
    limited(monkeypatch, 20)
    cell = "for each in rows:\n    print(each, sum(each), len(each))"
    (warning,) = capture_cell(["rows = [[1]]"], cell, line=2).warnings
    assert warning.startswith("cell [2] line 2 is too intricate")


@pytest.mark.parametrize("work", [0, 3, 20])
def test_a_job_sees_what_the_kernel_saw_where_statements_are_not_followed(monkeypatch: pytest.MonkeyPatch, work: int):
    limited(monkeypatch, work)
    assert [str(each) for each in run(100, seed=7)] == []


def test_each_statement_may_use_a_little_where_others_have_used_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(abstract_state, "_WORK", 0)
    capture = capture_cell(["rows = [1]", "print(rows, sum(rows))"], "def train_data(): return rows")
    assert "print" not in capture.source


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("", "loads", False),
        ("", "training", True),
        ("decoder", "JSONDecoder", False),
        ("loads", "training", True),
        ("JSONDecoder", "decode", False),
        ("JSONDecoder", "training", True),
        ("", "__dict__", False),
        ("_default_decoder", "training", False),  # an instance, which may compute its attributes
        ("nothing.at.all", "training", False),
    ],
)
def test_a_member_that_a_loaded_package_surely_does_not_have_is_known(path: str, name: str, expected: bool):
    assert lacks("json", path, name) is expected


def test_a_module_that_computes_its_attributes_may_have_any():
    assert hasattr(numpy, "__getattr__")
    assert not lacks("numpy", "", "training")


def test_a_package_that_is_not_loaded_may_have_any_member():
    assert not lacks("a_package_that_is_not_loaded", "", "a")


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("", "rand", "rand"),
        ("random", "rand", "random.rand"),
        ("nn.init", "normal_", "nn.init.normal_"),
        ("a.b.c", "d", "a.d"),
        ("a.random.c", "rand", "a.random.rand"),
    ],
)
def test_a_long_path_keeps_what_tells_a_draw(path: str, name: str, expected: str):
    assert extended(path, name) == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["class A: pass\na = A()\na.init = torch.nn.init.normal_", "init = a.init"], "nn.init.normal_"),
        (
            ["class A:\n    def __init__(self, t): self.t = t\na = A(torch)", "init = a.t.nn.init.normal_"],
            "nn.init.normal_",
        ),
    ],
)
def test_a_member_of_a_package_keeps_its_path_in_an_attribute(cells: list[str], expected: str):
    state = state_after("import torch", *cells)
    assert {each.path for each in state.globals["init"]} == {expected}


def test_a_statement_that_is_not_followed_may_make_anything_that_draws_or_changes(monkeypatch: pytest.MonkeyPatch):
    limited(monkeypatch, 3)
    state = state_after("rows = iter([1, 2, 3])\nif rows:\n    more = [rows, rows, rows]")
    (obj,) = state.globals["more"]
    assert obj.assumed
    assert (obj.opaque, obj.stateful, obj.grows, obj.learns, obj.draws) == (True,) * 5
