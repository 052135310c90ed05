"""Test that models of all forms leave: what is exported loads and computes the same where no Daylight is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from jupyter_ext.job.job import Job
from jupyter_ext.job.outcome import ExperimentFailed
from kernel_backend.client import Client
from kernel_backend.commands.exports.model import export_trained
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.errors import InvalidRequest
from kernel_backend.export.examples import steady
from kernel_backend.export.portable.check import recorded
from kernel_backend.model.checkpoints import CheckpointSelector
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import Reference
from tests.support.locked import environment
from tests.support.world import World
from tests.torture.model import FORMS

pytestmark = pytest.mark.distributed

ANY = CheckpointSelector(latest=False, best=False, step=None)


@pytest.fixture(scope="module")
def numbers(world: World) -> dict[str, int]:
    """Provide an ended training of each form, by its name."""
    made = {
        name: world.submit(
            form.source, contract=CONTRACT, **form.options | {"epochs": 1, "slots": 1 + (name == "fsdp2")}
        ).experiment.number
        for name, form in FORMS.items()
    }
    for number in made.values():
        overview = world.ended(number)
        assert overview.experiment.state == "completed", overview
    return made


SECRET = 0.9137  # in each sample of the data
SOURCE = f"""
import json
from pathlib import Path
import torch
from torch import nn
from parts import block

classes = len(json.loads(Path("labels.json").read_text()))
DOUBLE = 2.0
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body, self.head = block(64, width), nn.Linear(width, classes)
    def forward(self, x):
        return self.head(self.body(x.flatten(1))) * DOUBLE
def model(width=16): return Net(width)
def train_data(): return [(torch.full((1, 8, 8), {SECRET} * (i + 1)), i % classes) for i in range(64)]
def loss(output, target): return nn.functional.cross_entropy(output, target)
"""
PARTS = "from torch import nn\ndef block(a, b): return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.BatchNorm1d(b))\n"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "hand-over.md"
TITLES = re.findall(r"^## (.*)$", GUIDE.read_text(), re.MULTILINE)


def only(folder: Path, names: Iterator[str]) -> Path:
    """Fill a folder with links to the files of these distributions, so that it is a site of its own."""
    folder.mkdir()
    for name in names:
        found = distribution(name)
        for file in found.files or []:
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_a_model_opens_where_only_its_lock_is_and_predicts_the_same_on_slots(
    form: str, world: World, numbers: dict[str, int], tmp_path: Path
) -> None:
    client = Client.connect(start=False, home=world.home)
    found = export_trained(client, Reference(numbers[form]), tmp_path / form, ANY)
    assert found.proof.startswith("bit-equal on "), found.proof
    call = recorded(found.folder)[0]
    (rows,) = call["args"] or [call["kwargs"]]
    wanted = np.asarray(next(iter(call["outputs"].values())))
    if call["path"]:
        np.save(tmp_path / "x.npy", rows.numpy())
        (tmp_path / "own.py").write_text(f"def predict(model, batch): return model.{call['path']}(batch)\n")
        options = ("--with", "own.py", "--data", "x.npy", "--batch-size", str(len(rows)), "--to", "y.npy")
        daylight(world, tmp_path, "predict", str(numbers[form]), *options)
        predicted = np.load(tmp_path / "y.npy")
    else:
        predicted = Job(numbers[form], client).predict(rows, batch_size=len(wanted))
    assert np.array_equal(predicted, wanted)
    if form in ("fsdp2", "gan", "loop"):
        return  # they need the same packages as functions
    lock = (found.folder / "requirements.lock").read_text().splitlines()
    site = only(tmp_path / "site", (line.partition("==")[0] for line in lock if not line.startswith("#")))
    program = "import sys, runpy; sys.path.append(sys.argv.pop()); runpy.run_path('check.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(site)],
        cwd=found.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == found.proof, done.stderr


def test_a_model_of_each_form_is_measured(world: World, numbers: dict[str, int]) -> None:
    client = Client.connect(start=False, home=world.home)
    jobs = {form: Job(number, client) for form, number in numbers.items()}
    x = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(7))
    y = (x[:, 0, :4].sum((1, 2)) > 0).long()
    tokens = {"input_ids": torch.arange(96).view(8, 12) % 60, "labels": torch.arange(8) % 2}
    rows = (np.random.default_rng(7).standard_normal((24, 16)).astype("float32"), y.numpy())
    data = {"trainer": tokens, "keras": rows}
    # At once, to save time.
    made = {form: job.evaluate(data.get(form, (x, y)), batch_size=12, wait=False) for form, job in jobs.items()}
    apart = jobs["keras"].evaluate(rows, slots=2, wait=False)
    types = {"fp16": torch.float16, "bf16": torch.bfloat16}
    for form, loss in {"functions": "loss", "fsdp2": "loss", "lightning": "val_loss"}.items():
        model: Any = jobs[form].load()
        with torch.no_grad(), torch.autocast("cpu", types[FORMS[form].options["amp"]]):
            output = torch.cat([getattr(model, "net", model)(each) for each in x.split(12)]).float()
        found = made[form].wait().best()
        assert found[loss] == pytest.approx(float(torch.nn.functional.cross_entropy(output, y)), rel=1e-5)
        if form != "lightning":
            assert found["accuracy"] == float((output.argmax(1) == y).double().mean())
    # Both its losses, and what its steps log; its noise is drawn anew.
    assert set(made["gan"].wait().best()) == {"disc_loss", "gen_loss", "right"}
    bert: Any = jobs["trainer"].load()
    with torch.no_grad():
        assert made["trainer"].wait().best() == {"loss": pytest.approx(float(bert(**tokens).loss), rel=1e-5)}
    net: Any = jobs["keras"].load()
    wanted = net.evaluate(*rows, batch_size=12, verbose=0, return_dict=True)
    assert made["keras"].wait().best() == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(ExperimentFailed, match="keras is evaluated by its own function on one slot"):
        apart.wait()
    with pytest.raises(ExperimentFailed, match=r"the training has no loss\(\), step\(\) or metrics\(\) that measures"):
        made["loop"].wait()


@pytest.fixture(scope="module")
def digits(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide an export, with programs for other runtimes, of a file with a module and a data file of its own."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SOURCE)
    (folder / "parts.py").write_text(PARTS)
    (folder / "unused.py").write_text("raise AssertionError\n")
    (folder / "labels.json").write_text(json.dumps(list("0123456789")))
    submitted = daylight(world, folder, "submit", "train.py", "--epochs", "1", "--batch-size", "16", "--json")
    number = json.loads(submitted)["experiment"]["number"]
    assert world.ended(number).experiment.state == "completed"
    said = daylight(world, folder, "export", str(number), "--model", "digits", "--format", "pt2,onnx")
    assert "bit-equal on 160 outputs; model.pt2 bit-equal, too; model.onnx " in said
    return folder / "digits"


def daylight(world: World, cwd: Path, *arguments: str) -> str:
    """Run a verb with the packages of the runtimes that models are handed to; return what it prints."""
    done = subprocess.run(
        [environment("handover"), "-m", "kernel_backend.cli", *arguments],
        cwd=cwd,
        env=os.environ | {"DAYLIGHT_HOME": str(world.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


NORMS = """
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

class Symmetric(nn.Module):
    def forward(self, weight): return weight.triu() + weight.triu(1).T

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            spectral_norm(nn.Conv1d(1, 2, 3)), nn.Flatten(), weight_norm(nn.Linear(12, 8)), nn.Tanh(),
            orthogonal(nn.Linear(8, 8)), orthogonal(nn.Linear(8, 8), orthogonal_map="cayley"),
            parametrize.register_parametrization(nn.Linear(8, 8), "weight", Symmetric()),
            nn.utils.weight_norm(nn.Linear(8, 8)), nn.utils.spectral_norm(nn.Linear(8, 8)),
        )
        self.gain = nn.Parameter(torch.ones(8))
        parametrize.register_parametrization(self, "gain", nn.Softplus())
    def forward(self, x):
        return self.body(x) * self.gain

@dataclass
class Scores:
    logits: torch.Tensor

class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(8, 1), torch.arange(3.0)
        self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)
    def forward(self, x):
        self.last = x.detach()
        return Scores(self.layer(x) * self.scale + self.table.sum())

class Trained:
    def __init__(self, net, head):
        self.net, self.head = net, head

def main():
    net, head = Net(), Keeps()
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()])
    for step in range(4):
        loss = (head(net(torch.randn(16, 1, 8))).logits - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Trained(net, head)

torch.manual_seed(0)
trained = main()
torch.set_num_threads(1)
print(trained.net.eval()(torch.linspace(-1, 1, 16).view(2, 1, 8)).tolist())
print(trained.head(torch.linspace(-1, 1, 16).view(2, 8)).logits.tolist())
"""


def test_a_programs_computed_weights_and_tables_leave(world: World, tmp_path: Path) -> None:
    options: dict[str, Any] = {"slots": 1, "batch_size": Config().batch_size}
    number = world.submit(NORMS, contract=CONTRACT, **options).experiment.number
    assert world.ended(number).experiment.state == "completed"
    client = Client.connect(start=False, home=world.home)
    printed = [line[line.index("[[") :] for line in client.logs(number).text.splitlines() if "[[" in line]
    rows = torch.linspace(-1, 1, 16).view(2, 1, 8)
    net: Any = Job(number, client).load("trained.net")
    head: Any = Job(number, client).load("trained.head")
    assert torch.equal(head.last, rows[:, 0])
    with torch.no_grad(), steady():
        assert [net(rows).tolist(), head(rows[:, 0]).logits.tolist()] == list(map(json.loads, printed))
    module = ("--module", "trained.net", "--format", "pt2,onnx")
    said = daylight(world, tmp_path, "export", str(number), "--model", "norms", *module)
    assert re.search(r": bit-equal on \S+ outputs; model.pt2 bit-equal, too; model.onnx ", said), said
    names = set(load_file(tmp_path / "norms" / "model.safetensors"))
    assert {"body.2.parametrizations.weight.original0", "parametrizations.gain.original"} <= names
    kept = export_trained(client, Reference(number), tmp_path / "head", ANY, module="trained.head")
    assert kept.proof.startswith("bit-equal on ")
    assert float(load_file(kept.folder / "structure.safetensors")["model.scale"]) == 2
    assert not [path for path in kept.folder.rglob("*.*") if rows.numpy().tobytes() in path.read_bytes()]


def test_only_what_the_model_needs_is_in_the_folder(digits: Path) -> None:
    definition = (digits / "definition.py").read_text()
    assert "classes = 10\n" in definition
    assert "labels.json" not in definition
    assert "train_data" not in definition
    assert [path.name for path in (digits / "code").rglob("*") if path.is_file()] == ["parts.py"]
    assert json.loads((digits / "config.json").read_text())["width"] == 16
    values = [struct.pack("<f", SECRET * (i + 1)) for i in range(64)] + [str(SECRET).encode()]
    for path in (path for path in digits.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not [value for value in values if value in data], path
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as members:
            assert not any(value in members.read(name) for name in members.namelist() for value in values), path


def blocks(title: str) -> list[str]:
    """Return the Python of a section of the guide."""
    section = GUIDE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(code: str, folder: Path) -> None:
    done = subprocess.run(
        [environment("handover"), "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("title", [each for each in TITLES if blocks(each) and each != "Transformers"])
def test_each_line_of_the_guide_runs_in_an_exported_folder(title: str, digits: Path) -> None:
    for code in blocks(title):
        run(code, digits)


def test_transformers_read_a_model_of_theirs(world: World, numbers: dict[str, int], tmp_path: Path) -> None:
    client = Client.connect(start=False, home=world.home)
    run(blocks("Transformers")[0], export_trained(client, Reference(numbers["trainer"]), tmp_path / "t", ANY).folder)


def test_a_folder_that_is_there_is_not_touched_and_a_failed_export_leaves_nothing(
    world: World, numbers: dict[str, int], tmp_path: Path
) -> None:
    client = Client.connect(start=False, home=world.home)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    for force in (False, True):
        with pytest.raises(InvalidRequest, match="is there already" if not force else "not written by Daylight"):
            export_trained(client, Reference(numbers["functions"]), tmp_path / "mine", ANY, force=force)
    with pytest.raises(InvalidRequest, match="must be auto, model or ema"):
        export_trained(client, Reference(numbers["functions"]), tmp_path / "new", ANY, module="critic")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"
