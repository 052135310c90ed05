"""Test the advice on cells that are no definition; cells with a training loop are accepted unchanged."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jupyter_ext.capture import capture_cell, capture_file
from jupyter_ext.recognise import in_other_cells, recognise
from jupyter_ext.submit.submit import check
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition

SETUP = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
class Net(nn.Module):  # small
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def forward(self, x): return self.layer(x)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(12, 4), torch.arange(12) % 3)
train_loader, test_loader = DataLoader(data, batch_size=6), DataLoader(data)
model = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
num_epochs = 5
"""
LOOP = """for epoch in range(num_epochs):
    model.train()
    for i, (images, labels) in enumerate(train_loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    scheduler.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in test_loader:
            _, predicted = torch.max(model(images.to(device)), 1)
            correct += (predicted == labels.to(device)).sum().item()
"""
ABOVE = SETUP.count("\n") + 1
IN_FUNCTIONS = """import torch
from torch import nn, optim
def train_one_epoch(model, loader, optimizer, criterion):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x.view(x.size(0), -1))
        batch_loss = criterion(out, y)
        batch_loss.backward()
        optimizer.step()
        total += batch_loss.item()
    return total
def evaluate(model, loader):
    hits = 0
    for x, y in loader:
        pred = model(x.view(x.size(0), -1)).argmax(dim=1)
        hits += (pred == y).sum().item()
    return hits
def main():
    data = torch.utils.data.TensorDataset(torch.randn(8, 2, 2), torch.arange(8) % 3)
    net = nn.Linear(4, 5)
    net.out_features = 3
    net = net.cuda()
    loss = nn.CrossEntropyLoss()
    opt = optim.Adam(filter(lambda p: p.requires_grad, net.parameters()), lr=0.1)
    train_data = torch.utils.data.DataLoader(data, batch_size=4)
    val_dl = torch.utils.data.DataLoader(data, batch_size=2)
    for epoch in range(1, 3 + 1):
        total = train_one_epoch(net, train_data, opt, loss)
        acc = evaluate(net, val_dl)
if __name__ == "__main__":
    main()
"""
WHOLE = """import torch
X, y = torch.randn(10, 3), torch.randn(10, 1)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loss_fn = torch.nn.MSELoss()
for step in range(100):
    pred = net(X)
    loss = loss_fn(pred, y)
    opt.zero_grad(); loss.backward(); opt.step()
"""


# The tutorial's loop, in which a batch has a number and is taken apart in the body.
NUMBERED = """import torch
from torch import nn
data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.arange(8) % 3)
trainloader = torch.utils.data.DataLoader(data, batch_size=4)
testloader = torch.utils.data.DataLoader(data)
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for i, batch in enumerate(trainloader, 0):
        inputs, labels = batch
        outputs = net(inputs)
        loss = nn.functional.cross_entropy(outputs, labels)
        loss += 0.1 * outputs.square().mean()
        loss.backward()
        optimizer.step()
for batch in testloader:
    images, labels = batch
    _, predicted = torch.max(net(images), 1)
    correct += (predicted == labels).sum().item()
"""
PLAIN = """import torch
model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def found(source: str, roles_from: int = 1) -> Any:
    recognised = recognise(source, roles_from)
    assert recognised is not None
    return recognised


@pytest.mark.parametrize(
    ("source", "summary", "epochs"),
    [
        (SETUP + LOOP, "script: epochs in line 18, batches in line 20", 5),
        (IN_FUNCTIONS, "script: epochs in line 28, batches in line 5", 3),
        (WHOLE, "script: steps in line 6", 100),
        (NUMBERED, "script: epochs in line 8, batches in line 9", 2),
    ],
)
def test_a_loop_that_trains_is_taken_as_it_stands(source: str, summary: str, epochs: int):
    definition = parse(source)
    assert (definition.summary, definition.settings) == (summary, {"epochs": epochs})


@pytest.mark.parametrize(
    "body",
    [
        "l = f(model(x + 1), model(x))\nl.backward()",
        "y[y < 0] = 0\nl = f(model(x), y)\nl.backward()",
        "f(model(x), y).backward()\ng(model(x)).backward()",
        "l = f(model(x), y)\nl.backward()\nif i % 4:\n    opt.step()",
        "for g in opt.param_groups: g['lr'] *= 0.9\nf(model(x), y).backward()",
        "l = f(model(x), y)\nif training:\n    l.backward()",
    ],
)
def test_a_step_of_any_kind_is_taken_as_it_stands(body: str):
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    assert parse(f"{PLAIN}for x, y in loader:\n{lines}    opt.step()\n").summary == "script: steps in line 4"


def test_of_two_loops_that_train_both_are_taken():
    loop = "for x, y in loader:\n    model(x).sub(y).backward()\n    opt.step()\n"
    assert parse(PLAIN + loop + loop).summary == "script: steps in lines 4 and 7"


def test_a_cell_that_calls_a_loop_of_an_earlier_cell_is_taken_as_it_stands():
    above = "def fit(model, loader):\n    for x, y in loader:\n        model(x).backward()\n"
    assert parse(f"{above}fit(net, data)\n", roles_from=4).form == "script"


def test_a_loop_of_an_earlier_cell_alone_makes_no_cell_a_training():
    above = "for x, y in loader:\n    model(x).backward()\n"
    with pytest.raises(InvalidDefinition, match="this cell has no"):
        parse(f"{above}print(1)\n", roles_from=3)


def test_values_by_the_names_of_roles_next_to_a_loop_are_the_loops_own():
    source = (
        "model = Net()\ntrain_data = read()\nloss = nn.MSELoss()\n"
        "for x, y in train_data:\n    loss(model(x), y).backward()\n"
    )
    assert parse(source).form == "script"


def test_functions_by_the_names_of_roles_that_a_loop_calls_are_the_loops_own():
    roles = "def model(): ...\ndef train_data(): ...\ndef loss(output, target): ...\n"
    loop = "net = model()\nfor x, y in train_data():\n    loss(net(x), y).backward()\n"
    assert parse(roles + loop).form == "script"
    assert parse(roles).form == "functions"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "trainer = Trainer(model=make(), args=args, train_dataset=a, eval_dataset=b)\ntrainer.train()",
            "Trainer(...) trains by itself (line 1), and a job takes the steps of a training itself. Write def "
            "model() that makes make(), def train_data(): return a, def validation_data(): return b and "
            "def loss(output): return output.loss",
        ),
        ("learn.fine_tune(3)", "learn.fine_tune(...) trains by itself (line 1)"),
        ("booster = xgb.train({}, data)", "xgb.train(...) trains by itself (line 1)"),
        ("import horovod.torch as hvd\nhvd.init()", "hvd.init(...) starts the ranks itself (line 2)"),
        (
            "def train(model, loader):\n    model(1).backward()",
            "def train(...) trains in a loop of its own (line 1), and nothing in this cell calls it: write the call, "
            "such as train(...), below it",
        ),
        (
            "class Agent:\n    def learn(self):\n        self.loss().backward()",
            "class Agent trains in a loop of its own (line 1), and nothing in this cell calls it",
        ),
        ("trainer = Trainer(model=model)\ntrainer.train()", "Trainer(...) trains by itself (line 1)"),
        ("model = keras.Sequential([])\nmodel.compile('adam')", "model.compile(...) makes a Keras model (line 2)"),
        ("clf = RandomForestClassifier()\nclf.fit(X, y)", "clf.fit(...) trains by itself (line 2)"),
        (
            "p = ArgumentParser()\nargs = p.parse_args()",
            "it is a script with arguments, without a training loop (line 2)",
        ),
        (
            "if __name__ == '__main__':\n    main()",
            "it is a script that runs from here, without a training loop (line 1)",
        ),
    ],
)
def test_what_is_no_definition_is_named_with_its_line(source: str, says: str):
    recognised = found(source)
    assert says in recognised.text
    assert recognised.cell is None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("from sklearn.svm import SVC\nclf = SVC()\nclf.fit(X, y)", "clf.fit(...) trains a model of sklearn (line 3)"),
        ("import xgboost as xgb\nbooster = xgb.train({}, data)", "xgb.train(...) trains a model of xgboost (line 2)"),
    ],
)
def test_a_model_that_is_no_network_is_to_be_run_as_it_is(source: str, says: str):
    told = found(source).text
    assert says in told
    assert "Write %%dlrun in place of %%dlsubmit" in told
    assert "def model" not in told


def test_what_other_cells_have_made_is_written_as_the_lines_that_name_it():
    own = "def metrics(output, target): ...\noptimizer = make()\n"
    made = {
        "model": torch.nn.Linear(2, 2),
        "train_set": torch.utils.data.TensorDataset(torch.ones(2)),
        "train_loader": torch.utils.data.DataLoader([1]),
        "trainset": [1],
        "criterion": torch.nn.MSELoss(),
        "val_data": torch.ones(3),
        "optimizer": torch.optim.SGD([torch.ones(1)]),
    }
    told = in_other_cells(["model", "train_data", "loss"], own, made)
    assert told is not None
    assert "Other cells have made model (a Linear), train_loader (a DataLoader), criterion (a MSELoss)" in told.text
    named = ("model", "train_loader", "val_data", "criterion")
    assert told.cell == "".join(f"{name} = {name}\n" for name in named) + own
    assert parse(told.cell).roles == ("model", "train_data", "validation_data", "loss", "metrics", "optimizer")


@pytest.mark.parametrize("made", [{"model": 3, "criterion": torch.nn.MSELoss()}, {"train_data": torch.ones(2)}])
def test_nothing_is_said_of_other_cells_that_lack_a_role(made: dict[str, Any]):
    assert in_other_cells(["model", "loss"], "train_data = [1]", made) is None


@pytest.mark.parametrize("source", ["x = 1", "def model(): ...\nscaler = StandardScaler().fit(x)\n"])
def test_of_anything_else_nothing_is_said(source: str):
    assert recognise(source, 1) is None


def test_a_submission_names_the_cells_of_the_loop(tmp_path):
    checked = check(capture_cell([SETUP], LOOP, line=2), {"num_epochs": 7})
    assert checked.capture.relocate(checked.definition.summary) == (
        "script: epochs in cell [2] line 2, batches in cell [2] line 4"
    )
    assert checked.config.epochs == 7
    assert checked.given == {}
    (tmp_path / "train.py").write_text(IN_FUNCTIONS)
    assert check(capture_file(tmp_path / "train.py"), {}).definition.form == "script"


def test_a_loop_in_a_module_of_the_project_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "engine.py").write_text(
        "def train_one_epoch(model, loader):\n    for x, y in loader:\n        model(x).sub(y).backward()\n"
    )
    (tmp_path / "train.py").write_text(
        "from engine import train_one_epoch\nlr = 0.1\nfor epoch in range(3):\n    train_one_epoch(net, data)\n"
    )
    checked = check(capture_file(tmp_path / "train.py"), {"lr": 0.2}, file=tmp_path / "train.py")
    assert checked.definition.summary == "script: epochs in line 3, batches in line 2 of engine"
    assert (checked.config.epochs, checked.params) == (3, {"lr": 0.2})


GAN = """import torch
from torch import nn
from torch.func import functional_call
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.G, self.D = nn.Linear(2, 2), nn.Linear(2, 1)
    def forward(self, x):
        fake = self.G(torch.ones_like(x))
        fixed = {name: each.detach() for name, each in self.D.named_parameters()}
        return self.D(fake.detach()).mean() - self.D(x).mean(), -functional_call(self.D, fixed, fake).mean()
def model(): return Both()
def train_data(): return torch.utils.data.TensorDataset(torch.ones(4, 2), torch.ones(4))
def loss(output): return sum(output)
"""


@pytest.mark.parametrize(
    ("cell", "command", "arguments"),
    [
        ("!python train.py --epochs 3", "!python train.py --epochs 3", "train.py --epochs 3"),
        ("x = 1\n!torchrun --nproc_per_node=2 train.py", "!torchrun --nproc_per_node=2 train.py", "train.py"),
        (
            "!accelerate launch --config_file a.yaml train.py",
            "!accelerate launch --config_file a.yaml train.py",
            "train.py",
        ),
        ("%run train.py", "%run train.py", "train.py"),
        ("%%bash\npython3 train.py", "python3 train.py", "train.py"),
        (
            "import subprocess\nsubprocess.run(['python', 'train.py'])",
            "subprocess.run(['python', 'train.py'])",
            "train.py",
        ),
        (
            "import subprocess, sys\nx = 2\nsubprocess.run([sys.executable, 'train.py', '--lr', '0.1', '--x', x])",
            "subprocess.run([sys.executable, 'train.py', '--lr', '0.1', '--x', x])",
            "train.py --lr 0.1 --x ...",
        ),
        (
            "import os\nos.system('python train.py --lr 1')",
            "os.system('python train.py --lr 1')",
            "train.py --lr 1",
        ),
        ("import runpy\nrunpy.run_path('train.py')", "runpy.run_path('train.py')", "train.py"),
        ("exec(open('train.py').read())", "exec(open('train.py').read())", "train.py"),
    ],
)
def test_a_script_that_a_cell_runs_is_named_with_its_own_submission(tmp_path, monkeypatch, cell, command, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(IN_FUNCTIONS)
    with pytest.raises(InvalidDefinition) as refused:
        check(capture_cell([], cell, line=2), {})
    line = cell.count("\n") + 2
    assert refused.value.message == (
        f"this cell runs train.py (cell [1] line {line}: {command}), and a job runs a program by itself. "
        f"Submit that one: %dlsubmit -- python {arguments}"
    )


@pytest.mark.parametrize(
    ("script", "instead"),
    [
        (None, "%dlsubmit -- python train.py"),
        ("x = (", "%dlsubmit -- python train.py"),
        ("trainer.fit(m)", "%dlsubmit -- python train.py"),
        (GAN, "%dlsubmit train.py"),
    ],
)
def test_a_script_of_any_kind_is_named_with_its_own_submission(tmp_path, monkeypatch, script, instead):
    monkeypatch.chdir(tmp_path)
    if script is not None:
        (tmp_path / "train.py").write_text(script)
    with pytest.raises(InvalidDefinition) as refused:
        check(capture_cell([], "!python train.py", line=2), {})
    assert refused.value.message.endswith(f"Submit that one: {instead}")


def test_a_comment_about_a_script_is_no_script():
    assert recognise("# run it by: python train.py\nx = 1", 1) is None
