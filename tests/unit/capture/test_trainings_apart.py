"""Test that a baseline trained in a cell of its own stays there, and that what a job needs of a training travels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jupyter_ext.capture import capture_cell

IMPORTS = """import copy
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)"""
DATA = """X = torch.randn(20, 4)
y = (X.sum(1) > 0).long()
rng = np.random.default_rng(0)
rows, labels = rng.normal(size=(20, 4)), rng.integers(2, size=20)
train = DataLoader(TensorDataset(X, y), 10)
criterion = nn.CrossEntropyLoss()
model = nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)"""
LOOP = """net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for xb, yb in {data}:
        l = criterion(net(xb), yb)
        optimizer.zero_grad(); l.backward(); optimizer.step()
"""
STEP = "m = nn.Linear(X.shape[1], 2)\no = torch.optim.SGD(m.parameters(), 0.1)\n"
BASELINES = {
    "a step": f"{STEP}l = criterion(m(X), y); o.zero_grad(); l.backward(); o.step()",
    "a loop": f"{STEP}for xb, yb in train:\n    l = criterion(m(xb), yb); o.zero_grad(); l.backward(); o.step()",
    "a device": f"{STEP}for xb, yb in train:\n    xb = xb.to('cpu')\n    criterion(m(xb), yb).backward()",
    "clipping": f"{STEP}criterion(m(X), y).backward()\nnn.utils.clip_grad_norm_(m.parameters(), 1.0); o.step()",
    "a schedule": f"{STEP}s = torch.optim.lr_scheduler.ReduceLROnPlateau(o)\n"
    "l = criterion(m(X), y); l.backward(); o.step(); s.step(l)",
    "a scaler": f"{STEP}s = torch.amp.GradScaler('cpu')\n"
    "s.scale(criterion(m(X), y)).backward(); s.unscale_(o); s.step(o); s.update()",
    "a closure": f"{STEP}def again():\n    l = criterion(m(X), y)\n    l.backward()\n    return l\no.step(again)",
    "a function": """def fit(net, lr, loader):
    o = torch.optim.Adam(net.parameters(), lr=lr)
    losses = []
    for xb, yb in loader:
        l = F.cross_entropy(net(xb), yb)
        o.zero_grad(); l.backward(); o.step()
        losses.append(l.item())
    return losses
history = fit(nn.Linear(4, 2), 0.1, train)""",
    "a class": """class Trainer:
    def __init__(self, net, loader):
        self.net, self.loader, self.losses = net, loader, []
        self.o = torch.optim.SGD(net.parameters(), 0.1)
    def fit(self):
        for xb, yb in self.loader:
            l = F.cross_entropy(self.net(xb), yb)
            self.o.zero_grad(); l.backward(); self.o.step()
            self.losses.append(l)
Trainer(nn.Linear(4, 2), train).fit()""",
    "a list of results": """results = []
for lr in (0.1, 0.01):
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    o = torch.optim.SGD(m.parameters(), lr)
    for xb, yb in train:
        l = criterion(m(xb), yb); o.zero_grad(); l.backward(); o.step()
    m.eval()
    results.append({"lr": lr, "acc": (m(X).argmax(1) == y).float().mean()})
print(results)""",
    "leaves": "w = torch.zeros(4, requires_grad=True)\nfor _ in range(2):\n    ((X @ w - y) ** 2).mean().backward()\n"
    "    with torch.no_grad():\n        w -= 0.1 * w.grad\n        w.grad = None",
    "gradients": "w = torch.zeros(4, 2, requires_grad=True)\n(g,) = torch.autograd.grad(criterion(X @ w, y), w)\n"
    "w = (w - 0.1 * g).detach().requires_grad_()",
    "averaged weights": f"{STEP}ema = torch.optim.swa_utils.AveragedModel(m)\n"
    "criterion(m(X), y).backward(); o.step(); ema.update_parameters(m)",
    "renewed statistics": f"{STEP}torch.optim.swa_utils.update_bn(train, m)",
    "a parametrization": f"{STEP}nn.utils.parametrizations.weight_norm(m)\n"
    "nn.utils.parametrize.remove_parametrizations(m, 'weight')",
    "pruned weights": f"{STEP}from torch.nn.utils import prune\nprune.l1_unstructured(m, 'weight', amount=0.5)\n"
    "prune.remove(m, 'weight')\nnn.utils.prune.random_unstructured(m, 'bias', 1)\nnn.utils.prune.remove(m, 'bias')",
    "a copy": "m = copy.deepcopy(nn.Linear(4, 2))\no = torch.optim.SGD(m.parameters(), 0.1)\nm(X).sum().backward()",
    "a bar": f"from tqdm.auto import tqdm\n{STEP}bar = tqdm(train)\nfor xb, yb in bar:\n    l = criterion(m(xb), yb)\n"
    "    l.backward(); o.step()\n    bar.set_postfix(loss=l.item())",
    "a library": "import lightning as L\nL.Trainer(max_epochs=1).fit(nn.Linear(4, 2), train)",
    "an estimator": "from sklearn.linear_model import LogisticRegression\nm = LogisticRegression()\n"
    "m.fit(rows, labels)\nm.score(rows, labels)",
    "a chained estimator": "from sklearn.neighbors import KNeighborsClassifier\n"
    "m = KNeighborsClassifier(3).fit(rows, labels)\nprint(m.score(rows, labels))",
    "a pipeline": "from sklearn.pipeline import make_pipeline\nfrom sklearn.svm import SVC\nm = make_pipeline(SVC())\n"
    "m.fit(rows, labels)\nm.fit(rows, labels)",
    "cross validation": "from sklearn.model_selection import cross_val_score\nfrom sklearn.svm import SVC\n"
    "cross_val_score(SVC(), rows, labels)",
}


@pytest.mark.parametrize("data", ["train", "[(X, y)]", "zip(torch.from_numpy(rows).float().split(5), labels)"])
@pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES)
def test_a_baseline_on_the_same_data_stays_behind(baseline: str, data: str):
    found = capture_cell([IMPORTS, DATA, baseline], LOOP.format(data=data)).source
    assert "# cell [2]" in found
    assert "# cell [3]" not in found


# Cells, and the expression that the submitted cell reads.
NEEDED = {
    "the same model": ("criterion(model(X), y).backward(); opt.step()", "model"),
    "renewed statistics": ("torch.optim.swa_utils.update_bn(train, model)", "model"),
    "pruned weights": (
        "from torch.nn.utils import prune\nprune.l1_unstructured(model, 'weight', 1)\nprune.remove(model, 'weight')",
        "model",
    ),
    "gradients alone": ("criterion(model(X), y).backward()", "model"),
    "a part of another model": (
        "head = nn.Sequential(model, nn.Linear(2, 2))\no = torch.optim.SGD(head.parameters(), 0.1)\n---\n"
        "criterion(head(X), y).backward(); o.step()",
        "model",
    ),
    "what it writes down": (
        "h = []\n---\nfor xb, yb in train:\n    l = criterion(model(xb), yb)\n    l.backward()\n    h.append(l.item())",
        "h",
    ),
    "a state that shares memory": ("s = model.state_dict()\n---\ncriterion(model(X), y).backward(); opt.step()", "s"),
    "data as a parameter": (
        "w = nn.Parameter(X)\n---\no = torch.optim.SGD([w], 0.1)\nw.sum().backward(); o.step()",
        "X",
    ),
    "data as weights": (
        "e = nn.Embedding.from_pretrained(X, freeze=False)\n---\no = torch.optim.SGD(e.parameters(), 0.1)\n"
        "e(y).sum().backward(); o.step()",
        "X",
    ),
    "data stored as weights": (
        "m = nn.Linear(4, 20)\nm.weight.data = X\n---\n"
        "o = torch.optim.SGD(m.parameters(), 0.1)\nm(X).sum().backward(); o.step()",
        "X",
    ),
    "the gradient of data": ("X.requires_grad_()\n---\n(X * 2).sum().backward()", "X.grad"),
    "the gradient of data by name": ("X.requires_grad = True\n---\n(X * 2).sum().backward()", "X.grad"),
    "a view in place": ("v = X.view(-1)\n---\nv.mul_(2)", "X"),
    "a transposed view in place": ("torch.t(X).mul_(2)", "X"),
    "batches in place": ("for xb in [X[:5], X[5:]]:\n    xb.sub_(1)", "X"),
    "an array in place": ("rows.partition(1)", "rows"),
    "an array by its tensor": ("t = torch.from_numpy(rows)\n---\nt.mul_(2)", "rows"),
    "a generator that shuffles": ("rng.shuffle(rows)", "rows"),
    "a generator that draws": ("z = rng.normal(size=2)", "rng.normal()"),
    "an estimator that overwrites": (
        "from sklearn.preprocessing import StandardScaler\ns = StandardScaler(copy=False)\n---\ns.fit_transform(rows)",
        "rows",
    ),
    "an estimator in a pipeline": (
        "from sklearn.preprocessing import StandardScaler\nfrom sklearn.pipeline import make_pipeline\n"
        "s = StandardScaler()\np = make_pipeline(s)\n---\np.fit(rows)",
        "s",
    ),
    "results in an argument": ("import lightgbm\nr = {}\n---\nlightgbm.train({}, None, evals_result=r)", "r"),
    "a copy of a model": (
        "m = copy.deepcopy(model)\no = torch.optim.SGD(m.parameters(), 0.1)\n---\n"
        "criterion(m(X), y).backward()\n---\no.step()",
        "m",
    ),
    "an unknown library": ("import gym\nenv = gym.make('x', data=rows)\n---\nenv.step(1)", "rows"),
    "a library that wraps": ("import other\nm = other.wrap(model)\n---\nm(X).sum().backward()", "model"),
    "ranks": ("import torch.distributed as dist\ndist.all_reduce(X)", "X"),
    "statistics": ("n = nn.BatchNorm1d(4)\n---\nn(X)", "n"),
}


@pytest.mark.parametrize(("cells", "read"), NEEDED.values(), ids=NEEDED)
def test_what_a_job_reads_of_a_training_travels(cells: str, read: str):
    history = [IMPORTS, DATA, *cells.split("\n---\n")]
    found = capture_cell(history, f"kept = {read}\n{LOOP.format(data='train')}").source
    assert history[-1] in found


@pytest.mark.parametrize(("value", "stays"), [(torch.ones(20, 4), True), (nn.Parameter(torch.ones(20, 4)), False)])
def test_what_the_notebook_has_tells_if_a_loaded_value_is_data(value: torch.Tensor, stays: bool):
    cells = [IMPORTS, DATA, "X = torch.load('x.pt')", BASELINES["a step"]]
    found = capture_cell(cells, LOOP.format(data="[(X, y)]"), {"X": value}).source
    assert ("# cell [4]" not in found) == stays
