"""Test that an `--as-script` script computes the same bits as the job, where Daylight cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from gang import DIGITS, Trial

from jupyter_ext.plain_script.script import plain_script
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config

pytestmark = pytest.mark.distributed

# An interpreter that has none of our packages, whatever is installed: it imports torch, and runs each script in a fork.
WITHOUT_DAYLIGHT = """
import json, os, runpy, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("daylight", "kernel_backend", "jupyter_ext"):
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Blocked())
import torch, torch._dynamo
for line in sys.stdin:
    folder, *argv = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        sys.argv = argv
        sys.stdout = sys.stderr = open("printed", "w", buffering=1)
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def without_daylight() -> Iterator[Callable[..., None]]:
    """`without_daylight(folder, *argv)` runs a script in a folder where Daylight cannot be imported."""
    command = [sys.executable, "-I", "-c", WITHOUT_DAYLIGHT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def run(folder: Path, *argv: str) -> None:
            print(json.dumps([str(folder), *argv]), file=process.stdin, flush=True)
            assert process.stdout.readline() == "0\n", (folder / "printed").read_text()

        yield run


SCHEDULED = (
    DIGITS
    + """
def schedule(optimizer, steps): return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps + 1)
def augment(batch):
    x, y = batch
    return x + 0.1 * torch.randn_like(x), y
"""
)

# Samples that draw, a DataLoader, dicts, a loss that logs, a metric of the whole set, names that the script has too.
DRAWING = """
import random
import numpy as np
import torch
from torch import nn
class Noisy(torch.utils.data.Dataset):
    def __init__(self, first, count): self.first, self.count = first, count
    def __len__(self): return self.count
    def __getitem__(self, index):
        x = torch.arange(6.0) * ((self.first + index) % 7) / 7 + torch.randn(6) + random.random() + np.random.rand()
        return {"x": x.float(), "labels": (self.first + index) % 2}
def split(text): return text
def batches(): return Noisy(0, 41)
def train_data(batches): return torch.utils.data.DataLoader(batches, batch_size=8, shuffle=True)
def validation_data(): return Noisy(41, 19)
def test_data(): return Noisy(60, 9)
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))
    def forward(self, x): return self.layers(x)
def model(width=8): return Net(width)
def optimizer(params, lr=0.05): return torch.optim.SGD(params, lr=lr, momentum=0.9)
def schedule(optimizer): return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
def loss(output, target):
    value = nn.functional.cross_entropy(output, target)
    return value, {"margin": output.diff(dim=1).mean()}
def metrics(output, target):
    found = output.argmax(1)
    return {"f1": 2 * ((found == 1) & (target == 1)).sum() / ((found == 1).sum() + (target == 1).sum()).clamp(min=1)}
if __name__ == "__main__":
    raise SystemExit("a job does not run this")
"""

GAN = """
import torch
from torch import nn
def train_data(): return [(torch.tensor([float(index % 5), 1.0]),) for index in range(40)]
def validation_data(train_data): return train_data[:10]
def model(width=8):
    return {
        "gen": nn.Sequential(nn.Linear(3, width), nn.Dropout(0.1), nn.Linear(width, 2)),
        "disc": nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1)),
    }
def optimizer(gen, disc, g_lr=1e-3, d_lr=2e-3):
    return {"gen": torch.optim.Adam(gen.parameters(), lr=g_lr), "disc": torch.optim.Adam(disc.parameters(), lr=d_lr)}
def step_disc(gen, disc, batch):
    (real,) = batch
    fake = gen(torch.randn(len(real), 3)).detach()
    return {"loss": nn.functional.softplus(disc(fake)).mean() + nn.functional.softplus(-disc(real)).mean()}
def step_gen(gen, disc, batch, index):
    if index % 3 == 2:
        return None
    fake = gen(torch.randn(len(batch[0]), 3))
    return {"loss": nn.functional.softplus(-disc(fake)).mean(), "spread": fake.std()}
"""

BARE = """
import torch
from torch import nn
def train_data(): return torch.utils.data.TensorDataset(torch.linspace(-1, 1, 30)[:, None])
def model(): return nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.2), nn.Linear(4, 1))
def loss(output, input): return nn.functional.mse_loss(output, input)
"""

OBJECTS = """
import torch
from torch import nn
train_loader = torch.utils.data.DataLoader([(torch.full((2,), n / 9), n % 2) for n in range(30)], batch_size=7)
net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.2), nn.Linear(4, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
"""

# Tensors as data, and a metric object that metrics itself calls by way of a helper.
INSIDE = """
import torch
from torch import nn
class Recall:
    def __init__(self): self.reset()
    def reset(self): self.found, self.count = 0, 0
    def update(self, output, target):
        self.found += int(((output.argmax(1) == 1) & (target == 1)).sum())
        self.count += int((target == 1).sum())
    def compute(self): return self.found / max(1, self.count)
recalls = {"recall": Recall()}
def updated(output, target):
    recalls["recall"].update(output, target)
    return recalls["recall"].compute()
x = torch.linspace(-1, 1, 90).reshape(45, 2)
def train_data(): return x, (x[:, 0] > 0.1).long()
def validation_data(): return x[::2], (x[::2, 0] > 0.1).long()
def model(): return nn.Linear(2, 2)
def optimizer(params, lr=0.3): return torch.optim.SGD(params, lr=lr)
def loss(output, target): return nn.functional.cross_entropy(output, target)
def metrics(output, target): return {"recall": updated(output, target)}
"""

CASES = {
    "objects": (OBJECTS, {"epochs": 2}),
    "columns and metric objects": (INSIDE, {"epochs": 3}),
    "schedule and augment": (SCHEDULED, {"epochs": 2, "clip": 0.5, "ema": 0.9}),
    "parts of a batch": (DIGITS, {"epochs": 2, "accumulate": 5, "amp": "bf16", "validate_every": {"steps": 4}}),
    "samples that draw": (DRAWING, {"epochs": 4, "patience": 2, "validate_first": True, "seed": 3}),
    "two models": (GAN, {"steps": 9, "clip": 1.0}),
    "without optimizer and target": (BARE, {"epochs": 2, "uneven": "drop", "device": "cpu"}),
}


def script_of(source: str, config: Config) -> str:
    definition = parse(source)
    return plain_script(source, definition, config, definition.bind({}), "daylight submit train.py")


@pytest.mark.parametrize("case", CASES)
def test_a_script_computes_the_same_bits_without_daylight(tmp_path, without_daylight, case):
    source, options = CASES[case]
    epochs = options.get("epochs", 1)
    others = {name: value for name, value in options.items() if name != "epochs"}
    trial = Trial(tmp_path / "trial", source=source, slots=1, epochs=epochs, options=others)
    attempt = trial.run()
    assert attempt.codes == [0], attempt.logs()
    script = tmp_path / "train.py"
    script.write_text(script_of(source, attempt.job.config))
    words = ["--log", "reports.jsonl", "--log-every", "1", "--save", "weights.pt"]
    without_daylight(tmp_path, "train.py", *words)
    reports = [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    for kind in ("training", "validation"):
        mine = {each["step"]: each["metrics"] for each in reports if each["kind"] == kind}
        its = attempt.reports(kind)
        assert its or kind == "validation"
        assert {step: mine[step] for step in its} == its
        assert kind == "training" or mine.keys() == its.keys()
    if "validation_data" not in parse(source).roles:
        assert all(torch.equal(each, trial.model()[name]) for name, each in torch.load(tmp_path / "weights.pt").items())


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        (BARE, {"rng": "stream"}, "--rng stream"),
        (BARE, {"weights_from": "12"}, "--from"),
        (BARE + "from daylight import run\n", {}, "line 7 imports daylight"),
        (BARE + "def sampler(train_data): return range(3)\n", {}, "sampler"),
        (BARE.replace("def model()", "def model(seed=1)"), {}, "seed"),
    ],
)
def test_what_would_change_numbers_is_refused(source, options, told):
    with pytest.raises(InvalidRequest, match=told):
        script_of(source, Config(**options))
