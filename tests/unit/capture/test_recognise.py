"""A cell that is no definition is told what it is; a training loop is written as the functions that it is made of."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from jupyter_ext.capture import capture_cell, capture_file
from jupyter_ext.recognise import in_other_cells, recognise
from jupyter_ext.submit.replacement_cell import offer
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


def made(source: str) -> types.ModuleType:
    module = types.ModuleType("definition")
    exec(source, module.__dict__)
    return module


def test_a_loop_below_its_setup_is_written_as_functions_of_its_own_names():
    loop = found(SETUP + LOOP, ABOVE)
    assert loop.text == (
        "this cell is a training loop (line 18: for epoch in range(num_epochs); line 25: loss.backward()). "
        "Daylight trains functions; these are yours"
    )
    assert loop.options == ("--epochs", "5", "--schedule-per", "epoch", "--clip", "1.0")
    assert loop.cell == (
        "def model():\n    return Net()\n"
        "def optimizer(params, lr=0.05):\n    return torch.optim.SGD(params, lr=lr)\n"
        "def schedule(optimizer):\n    return torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
        "def train_data():\n    return train_loader\n"
        "def validation_data():\n    return test_loader\n"
        "def loss(output, target):\n    return criterion(output, target)\n"
        "def metrics(output, target):\n    return {'accuracy': (torch.max(output, 1)[1] == target).float()}\n"
    )


def test_what_the_functions_need_of_the_cell_stays_as_it_was_written():
    loop = found(SETUP + LOOP)
    assert "class Net(nn.Module):  # small\n" in loop.cell
    assert "manual_seed" not in loop.cell
    assert "device" not in loop.cell
    assert "num_epochs" not in loop.cell


@pytest.mark.parametrize("source", [SETUP + LOOP, IN_FUNCTIONS, WHOLE, NUMBERED])
def test_the_functions_give_what_the_loop_has(source: str):
    loop = found(source)
    assert {"model", "optimizer", "train_data", "loss"} <= set(parse(loop.cell).roles)
    cell = made(loop.cell)
    net = cell.model()
    cell.optimizer(net.parameters())
    data = cell.train_data()
    x, y = next(iter(data)) if isinstance(data, torch.utils.data.DataLoader) else data.tensors
    loss = cell.loss(net(x), y)
    loss.backward()
    assert all(each.grad is not None for each in net.parameters())
    if "metrics" in parse(loop.cell).roles:
        assert cell.metrics(net(x), y)["accuracy"].shape == y.shape


def test_a_program_in_functions_is_read_where_they_are_called():
    loop = found(IN_FUNCTIONS)
    assert loop.options == ("--epochs", "3")
    assert "line 28: for epoch in range(1, 3 + 1); line 9: batch_loss.backward()" in loop.text
    assert "net.out_features = 3" in loop.cell
    assert "return self.net(x.view(x.size(0), -1))" in loop.cell
    assert "cuda" not in loop.cell


def test_what_is_added_to_a_loss_and_the_parts_of_a_numbered_batch_are_seen():
    loop = found(NUMBERED)
    assert "    return nn.functional.cross_entropy(output, target) + 0.1 * output.square().mean()\n" in loop.cell
    assert "{'accuracy': (torch.max(output, 1)[1] == target).float()}" in loop.cell
    assert "def validation_data():\n    return testloader\n" in loop.cell


def test_what_writes_first_weights_in_place_makes_the_model():
    source = (
        PLAIN + "torch.nn.init.zeros_(model.bias)\nfor x, y in loader:\n    model(x).sub(y).backward()\n    opt.step()"
    )
    assert not made(found(source).cell).model().bias.any()


def test_a_loop_without_the_model_is_no_validation():
    source = PLAIN + (
        "for epoch in range(3):\n    for extra in extras:\n        print(extra)\n"
        "    for x, y in loader:\n        model(x).sub(y).backward()\n        opt.step()\n"
    )
    assert "validation_data" not in found(source).cell


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("l = f(model(x + 1), model(x))\nl.backward()", "its loss comes from 2 different calls of model(...)"),
        ("l = f(model(x), y)\nl += model.weight.norm()\nl.backward()", "its loss needs model of the loop"),
        ("l = f(model(x), y)\nif a:\n    l = l + 1\nl.backward()", "changed in place, or only perhaps: l (line 6)"),
        ("y[y < 0] = 0\nl = f(model(x), y)\nl.backward()", "changed in place, or only perhaps: y (line 5)"),
        ("out = model(x)\nout.clamp_(0)\nf(out, y).backward()", "changed in place, or only perhaps: out (line 6)"),
        ("f(model(x), y).backward()\ng(model(x)).backward()", "a step has several losses (line 6: g(model(x)).backw"),
        (
            "l = f(model(x), y)\nl.backward()\nif i % 4:\n    opt.step()",
            "not every batch has a step (line 7: if i % 4)",
        ),
        (
            "for g in opt.param_groups: g['lr'] *= 0.9\nf(model(x), y).backward()",
            "it changes the optimizer itself (line 5)",
        ),
        (
            "for k in range(3):\n    l = f(model(x), y)\n    l.backward()\n    opt.step()",
            "its data need x, y of the loop",
        ),
    ],
)
def test_nothing_of_a_step_is_left_out(body: str, says: str):
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    loop = found(f"{PLAIN}for x, y in loader:\n{lines}    opt.step()\n")
    assert says in loop.text
    assert loop.cell is None


def test_of_two_loops_that_train_neither_is_left_out():
    loop = "for x, y in loader:\n    model(x).sub(y).backward()\n    opt.step()\n"
    assert "another one trains behind it (line 7)" in found(PLAIN + loop + loop).text


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        (
            "while more():\n    for x, y in loader:\n        f(model(x), y).backward()\n        opt.step()",
            "how often it runs (line 4)",
        ),
        (
            "for b in loader:\n    f(model(b[:, :-1]), b[:, 1:]).backward()\n    opt.step()",
            "model is called with model(b[:, :-1])",
        ),
        (
            "for x, y in loader:\n    l = f(model(x), y)\n    if training:\n        l.backward()\n    opt.step()",
            "one loop trains and does else (line 6: if training)",
        ),
    ],
)
def test_a_loop_that_is_read_in_part_only_is_refused(loop: str, says: str):
    recognised = found(PLAIN + loop)
    assert says in recognised.text
    assert recognised.cell is None


def test_parts_of_a_batch_may_go_by_place_or_by_name():
    by_place = "for b in loader:\n    f(model(b[0]), b[1]).backward()\n    opt.step()"
    by_name = "for b in loader:\n    f(model(**b).loss).backward()\n    opt.step()"
    assert "return f(output, batch[1])" in found(PLAIN + by_place).cell
    assert "return f(output.loss)" in found(PLAIN + by_name).cell


def test_epochs_that_count_from_1_are_not_taken_for_those_that_count_from_0():
    inner = "\n    for x, y in loader:\n        (model(x) * epoch).sum().backward()\n        opt.step()\n"
    assert "def loss(output, epoch):" in found(f"{PLAIN}for epoch in range(3):{inner}").cell
    assert "its loss needs epoch of the loop" in found(f"{PLAIN}for epoch in range(1, 4):{inner}").text


def test_steps_of_all_samples_are_epochs_of_one_batch():
    loop = found(WHOLE)
    assert loop.options == ("--epochs", "100", "--batch-size", "{len(X)}")
    assert "TensorDataset(X, y)" in loop.cell


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
        ("def train(model, loader):\n    model(1).backward()", "def train(...) trains in a loop of its own (line 1)"),
        ("trainer = Trainer(model=model)\ntrainer.train()", "Trainer(...) trains by itself (line 1)"),
        ("model = keras.Sequential([])\nmodel.compile('adam')", "model.compile(...) makes a Keras model (line 2)"),
        ("clf = RandomForestClassifier()\nclf.fit(X, y)", "clf.fit(...) trains by itself (line 2)"),
        ("p = ArgumentParser()\nargs = p.parse_args()", "it is a script with arguments (line 2)"),
        ("if __name__ == '__main__':\n    main()", "it is a script that runs from here (line 1)"),
        (
            "G, D = Net(), Net()\nog = Adam(G.parameters())\nod = Adam(D.parameters())\n"
            "for x in loader:\n    D(x).backward()\n    od.step()\n    G(x).backward()\n    og.step()\n",
            "it steps 2 optimizers: od (line 6), og (line 8), as a GAN does. Write what each optimizer minimises as a "
            "step, without backward and zero_grad:\n"
            'def model(): return {"D": ..., "G": ...}\n'
            'def optimizer(D, G): return {"D": Adam(D.parameters()), "G": Adam(G.parameters())}\n'
            'def step_D(D, G, batch): return {"loss": ...}\n'
            'def step_G(D, G, batch): return {"loss": ...}',
        ),
        ("for x, y in loader:\n    model(x).sum().backward()\n", "it is not seen where its optimizer is made"),
    ],
)
def test_what_cannot_be_written_as_functions_is_named_with_its_line(source: str, says: str):
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


KERAS = """import keras
import numpy as np
x, y = np.ones((8, 4)), np.arange(8)
model = keras.Sequential()
model.add(keras.layers.Dense(1))
model.compile(loss="mse", optimizer="adam")
model.summary()
stop = [keras.callbacks.EarlyStopping(monitor="val_loss")]
history = model.fit(x, y, 4, epochs=3, shuffle=True, validation_split=0.3, callbacks=stop, verbose=0)
print(history.history)
"""


def test_a_call_of_keras_fit_is_written_as_functions_with_the_split_of_keras():
    written = found(KERAS)
    assert written.text == (
        "model.fit(...) trains a Keras model (line 9), and a job calls fit itself. These are its parts"
    )
    assert written.options == ("--epochs", "3", "--batch-size", "4")
    assert written.cell == (
        "import keras\nimport numpy as np\nx, y = np.ones((8, 4)), np.arange(8)\n\n"
        "def model():\n    model = keras.Sequential()\n    model.add(keras.layers.Dense(1))\n"
        "    model.compile(loss='mse', optimizer='adam')\n    return model\n"
        "def train_data():\n    count = int(len(x) * (1 - 0.3))\n    return x[:count], y[:count]\n"
        "def validation_data():\n    count = int(len(x) * (1 - 0.3))\n    return x[count:], y[count:]\n"
        "def callbacks():\n    return [keras.callbacks.EarlyStopping(monitor='val_loss')]\n"
    )
    definition = parse(written.cell)
    assert (definition.form, definition.roles) == ("keras", ("model", "train_data", "validation_data", "callbacks"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("shuffle=True", "shuffle=False"),
        ("shuffle=True", "class_weight={0: 2.0}"),
        ("shuffle=True", "**settings"),
        ("model.summary()", "names = [each.name for each in model.layers]"),
        ("import keras", "from tensorflow import keras"),
    ],
)
def test_a_call_of_keras_fit_is_not_rewritten_where_something_would_be_lost(before: str, after: str):
    recognised = found(KERAS.replace(before, after))
    assert recognised.cell is None
    assert "and a job calls fit itself, on Keras' torch backend. Write def model() that makes, " in recognised.text
    assert "%%dlrun" in recognised.text


def test_a_submission_names_the_cells_lines_and_ends_with_the_functions(tmp_path):
    with pytest.raises(InvalidDefinition) as refused:
        check(capture_cell([SETUP], LOOP, line=2), {})
    assert (
        "(cell [2] line 2: for epoch in range(num_epochs); cell [2] line 9: loss.backward())" in refused.value.message
    )
    assert refused.value.message.endswith(refused.value.details["cell"])
    assert "to be submitted with --epochs 5 --schedule-per epoch --clip 1.0:" in refused.value.message
    (tmp_path / "train.py").write_text(IN_FUNCTIONS)
    with pytest.raises(InvalidDefinition, match=r"train\.py line 28: for epoch"):
        check(capture_file(tmp_path / "train.py"), {})


def test_the_finished_cell_is_accepted_where_the_loop_stood():
    cell = found(SETUP + LOOP, ABOVE).cell
    checked = check(capture_cell([SETUP], cell, line=2), {"lr": 0.1})
    assert checked.definition.summary == ("functions: model optimizer schedule train_data validation_data loss metrics")
    assert checked.params == {"lr": 0.1}


def test_the_first_line_keeps_what_was_on_it():
    assert offer("x\n", ("--epochs", "5", "--clip", "1"), "--slots 2 --epochs=3") == (
        "%%dlsubmit --slots 2 --epochs=3 --clip 1\nx\n"
    )
    assert offer("x\n", (), "") == "%%dlsubmit\nx\n"


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


def test_what_is_told_to_work_instead_of_a_gan_has_the_gradients_of_its_two_steps():
    cell = made(GAN)
    net, x = cell.model(), torch.randn(4, 2)
    check(capture_cell([], GAN), {})
    cell.loss(net(x)).backward()
    fake = net.G(torch.ones_like(x))
    of_d = torch.autograd.grad(net.D(fake.detach()).mean() - net.D(x).mean(), list(net.D.parameters()))
    of_g = torch.autograd.grad(-net.D(fake).mean(), list(net.G.parameters()))
    assert all(map(torch.allclose, of_d, (each.grad for each in net.D.parameters())))
    assert all(map(torch.allclose, of_g, (each.grad for each in net.G.parameters())))


@pytest.mark.parametrize(
    ("cell", "command"),
    [
        ("!python train.py --epochs 3", "!python train.py --epochs 3"),
        ("x = 1\n!torchrun --nproc_per_node=2 train.py", "!torchrun --nproc_per_node=2 train.py"),
        ("!accelerate launch --config_file a.yaml train.py", "!accelerate launch --config_file a.yaml train.py"),
        ("%run train.py", "%run train.py"),
        ("%%bash\npython3 train.py", "python3 train.py"),
        ("import subprocess\nsubprocess.run(['python', 'train.py'])", "subprocess.run(['python', 'train.py'])"),
    ],
)
def test_a_script_that_a_cell_runs_is_named_and_its_loop_is_written_as_functions(tmp_path, monkeypatch, cell, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(IN_FUNCTIONS)
    with pytest.raises(InvalidDefinition) as refused:
        check(capture_cell([], cell, line=2), {})
    line = cell.count("\n") + 2
    assert refused.value.message.startswith(
        f"this cell runs train.py (cell [1] line {line}: {command}), which a job does not do. train.py is a training "
        "loop (train.py:28: for epoch in range(1, 3 + 1); train.py:9: batch_loss.backward()). Daylight trains functions"
    )
    assert {"model", "optimizer", "train_data", "loss"} <= set(parse(refused.value.details["cell"]).roles)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "which a job does not do. Daylight trains functions. What works instead: def model(), def train_data()"),
        ("x = (", "which a job does not do. Daylight trains functions. What works instead: def model()"),
        (GAN, "train.py is a definition. What works instead: daylight submit train.py"),
        (
            "import subprocess\nsubprocess.run(['python', 'train.py'])",
            "which a job does not do. Daylight trains functions. What works instead: def model(), def train_data()",
        ),
        ("trainer.fit(m)", "trainer.fit(...) trains by itself (train.py:1)"),
        ("p = ArgumentParser()\np.parse_args()", "train.py is a script with arguments (train.py:2)"),
    ],
)
def test_a_script_that_cannot_be_written_as_functions_is_named_with_what_works(tmp_path, monkeypatch, script, says):
    monkeypatch.chdir(tmp_path)
    if script is not None:
        (tmp_path / "train.py").write_text(script)
    with pytest.raises(InvalidDefinition) as refused:
        check(capture_cell([], "!python train.py", line=2), {})
    assert says in refused.value.message
    assert "cell" not in refused.value.details


def test_a_comment_about_a_script_is_no_script():
    assert recognise("# run it by: python train.py\nx = 1", 1) is None


@pytest.mark.parametrize(
    "source",
    [
        "def train(model, loader):\n    model(1).backward()",
        "class Agent:\n    def learn(self):\n        self.loss().backward()",
        "for step in range(10):\n    play(net).backward()\n    opt.step()\n",
    ],
)
def test_a_loop_that_cannot_be_written_as_functions_is_told_how_to_stay_one(source):
    found = recognise(source, 1)
    assert found is not None
    assert "def train(run): run.restore(model=..., optimizer=...)" in found.text
