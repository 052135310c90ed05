"""Test that `job.load()` returns the model with the requested weights over the API, without a shared disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jupyter_ext.capture import Capture, capture_cell
from jupyter_ext.job.job import Job
from kernel_backend.client import Client
from kernel_backend.definition.contract import CONTRACT
from kernel_backend.errors import CheckpointDamaged, InvalidRequest, NotFound
from kernel_backend.model.experiment import Config, Metric, Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery
from kernel_backend.model.snapshot import Environment, Snapshot
from kernel_backend.runner.forms.script.named_modules import NamedModules
from kernel_backend.snapshots.archive import pack_snapshot, unpack
from kernel_backend.snapshots.loaded import loaded
from tests.api.committed import commit, spoil
from tests.api.served import TOKEN, Served, archive, ended, started, token_of
from tests.support.world import until

DEFINITION = """\
from torch import nn
def model(width=2): return nn.Linear(width, 1, bias=False)
def train_data(): return []
def loss(output, target): return 0
def metrics(output, target): return {"accuracy": 0.0}
"""


@pytest.fixture
def job(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "another machine's"))
    return submitted(client, DEFINITION)


def submitted(client: Client, definition: str) -> Job:
    id, data = archive(definition)
    client.upload_snapshot(id, data)
    config = Config(metric=Metric(name="accuracy", mode="max"))
    made = client.submit(Submission(snapshot=id, config=config, python="/usr/bin/python3", cwd="/"))
    return Job(made.experiment.number, client)


def submitted_today(client: Client, source: str) -> Job:
    """Submit a definition that is read by the contract of today."""
    environment = Environment(python="3", implementation="", platform="", cpu="", cores=1, distributions={})
    snapshot = Snapshot(
        version="0.1.0", numerics=1, environment=environment, contract=CONTRACT, roles_from=1, pieces=()
    )
    id, data = pack_snapshot(source, snapshot, {})
    client.upload_snapshot(id, data)
    made = client.submit(Submission(snapshot=id, config=Config(), python="/usr/bin/python3", cwd="/"))
    return Job(made.experiment.number, client)


def test_weights_are_taken_from_the_newest_a_step_or_the_best(job: Job, tmp_path: Path) -> None:
    for step, accuracy in ((5, 0.8), (6, 0.9), (7, 0.9), (8, 0.1), (9, float("nan"))):
        commit(tmp_path, step, accuracy=accuracy)
    model = job.load(wait=False)
    assert model.weight.tolist() == [[9.0, 9.0]]
    assert not model.training
    assert job.load(step=5).weight.tolist() == [[5.0, 5.0]]
    assert job.load(best=True, wait=False).weight.tolist() == [[6.0, 6.0]]
    with pytest.raises(NotFound, match="no checkpoint at step 4; there are those at 5, 6, 7, 8, 9"):
        job.load(step=4)
    with pytest.raises(InvalidRequest, match="one of"):
        job.load(step=5, best=True, wait=False)
    with pytest.raises(NotFound, match=r"trial 1\.2 has no checkpoint"):
        job.load(trial=2, wait=False)


def test_a_model_that_is_a_value_is_another_object_each_time(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "another machine's"))
    source = (
        "from torch import nn\nnet = nn.Linear(2, 1, bias=False)\n"
        "train_data = list(range(3))\ncriterion = nn.MSELoss()\n"
    )
    job = submitted_today(client, source)
    commit(tmp_path, 5)
    first, second = job.load(step=5), job.load(step=5)
    assert first.weight.tolist() == second.weight.tolist() == [[5.0, 5.0]]
    assert first.weight is not second.weight


def test_averaged_weights_are_taken_where_there_are_some(job: Job, tmp_path: Path) -> None:
    commit(tmp_path, 5)
    commit(tmp_path, 6, ema=0.5)
    assert job.load(wait=False).weight.tolist() == [[0.5, 0.5]]
    assert job.load(weights="ema", wait=False).weight.tolist() == [[0.5, 0.5]]
    assert job.load(weights="model", wait=False).weight.tolist() == [[6.0, 6.0]]
    assert job.load(step=5).weight.tolist() == [[5.0, 5.0]]
    with pytest.raises(InvalidRequest, match="trained without --ema"):
        job.load(step=5, weights="ema")
    with pytest.raises(InvalidRequest, match="auto, model or ema"):
        job.load(weights="averaged", wait=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="its model was trained alone"):
        job.load("beside", wait=False)


def test_of_a_loop_of_ones_own_the_part_model_is_loaded_and_others_are_named(client: Client, tmp_path: Path) -> None:
    job = submitted_today(client, "def train(run): ...\n")
    commit(tmp_path, 6, ema=0.5)
    assert job.load(wait=False)["weight"].tolist() == [[6.0, 6.0]]
    assert job.load("ema", wait=False)["weight"].tolist() == [[0.5, 0.5]]
    with pytest.raises(InvalidRequest, match=r'no part critic, .*: write job.load\("model"\), job.load\("ema"\)'):
        job.load("critic", wait=False)


def test_what_a_model_keeps_is_not_kept_again_when_it_is_loaded(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeping = 'def model(run, width=2):\n    run.artifact("net", "only the job had this.png")\n    return '
    definition = DEFINITION.replace("def model(width=2): return ", keeping)
    assert definition != DEFINITION
    loaded = submitted(client, definition)
    commit(tmp_path, 5)
    assert loaded.load(wait=False).weight.tolist() == [[5.0, 5.0]]
    assert capsys.readouterr() == ("", "")


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(tmp_path, 5)
    spoil(commit(tmp_path, 6))
    assert job.load(wait=False).weight.tolist() == [[5.0, 5.0]]
    assert "part model has changed since it was written: step 5 is taken" in capsys.readouterr().err
    with pytest.raises(CheckpointDamaged, match="part model has changed"):
        job.load(step=6)


def test_where_a_training_lets_the_newest_go_while_it_is_read_the_one_of_now_is_taken(
    job: Job, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, first = client.part, commit(tmp_path, 5).parent

    def later(*asked: Any) -> Iterator[bytes]:
        if first.exists():
            shutil.rmtree(first)
            commit(tmp_path, 6)
        return part(*asked)

    monkeypatch.setattr(client, "part", later)
    assert job.load(wait=False).weight.tolist() == [[6.0, 6.0]]
    with pytest.raises(NotFound, match="no checkpoint at step 5"):
        job.load(step=5)


def test_without_a_whole_checkpoint_the_damage_is_named(job: Job, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoint yet: look with"):
        job.load(wait=False)
    commit(tmp_path, 6).write_bytes(b"")
    with pytest.raises(CheckpointDamaged, match="part model has 0 bytes"):
        job.load(wait=False)


def test_bytes_that_change_on_their_way_are_noticed_on_arrival(
    job: Job, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path, 6)
    true = b"".join(client.part(1, 1, "6-1", "model"))
    monkeypatch.setattr(client, "part", lambda *_: iter([true[:-1], bytes([true[-1] ^ 1])]))
    with pytest.raises(CheckpointDamaged, match="is not as it was written"):
        job.load(wait=False)


def test_while_it_trains_it_is_waited_for_and_that_is_said(
    served: Served, client: Client, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, loaded, key = "", list[Any](), AttemptId(job.number, 1, 1)
    token_of(served, key)  # it has started: a checkpoint that was there before would be of an attempt before it
    commit(tmp_path, 5)
    waiting = threading.Thread(target=lambda: loaded.append(job.load()))
    waiting.start()
    while "\n" not in said:
        said += capsys.readouterr().out
        time.sleep(0.01)
    assert said.startswith(f"waiting for #{job.number}, ")
    assert said.endswith("; interrupt to take what is there\n")
    commit(tmp_path, 9)
    ended(served, client, key)
    waiting.join()
    assert loaded[0].weight.tolist() == [[9.0, 9.0]]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Restore SIGINT's usual handler, since a shell ignores it for a test suite in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the next wait in `follow`, and no other sleep of this process."""
    clock = types.SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr("kernel_backend.commands.follow.time", clock)


@pytest.mark.usefixtures("interruptible")
def test_what_a_queued_job_waits_for_is_said(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [submitted(client, DEFINITION.replace("width=2", f"width={width}")) for width in range(1, 10)]
    interrupted_while_it_waits(monkeypatch)
    with pytest.raises(NotFound, match="no checkpoint yet"):
        jobs[-1].load()
    wait = jobs[-1].overview.wait
    assert wait is not None
    assert f"waiting for #{jobs[-1].number}, queued ({wait.reason}); interrupt" in capsys.readouterr().out


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_takes_what_is_there(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path, 5)
    interrupted_while_it_waits(monkeypatch)
    assert job.load().weight.tolist() == [[5.0, 5.0]]
    assert f"taken while it trains: #{job.number}, " in capsys.readouterr().out


def test_weights_of_a_stopped_training_are_given_with_a_word(
    served: Served, client: Client, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = AttemptId(job.number, 1, 1)
    client.deliver(key, token_of(served, key), Delivery(records=(started(),)))
    commit(tmp_path, 5)
    job.stop()
    served.engine.step_aside(key)
    until(lambda: job.status == "stopped", "it is stopped")
    assert job.load().weight.tolist() == [[5.0, 5.0]]
    assert capsys.readouterr().out.startswith(f"stopped: #{job.number}, ")


LOADS = """
import inspect, sys, tempfile
from pathlib import Path
from jupyter_ext.job.job import Job
from kernel_backend.client import Client

job = Job(1, Client.at(*sys.argv[1:]))
models = [job.load(wait=False) for _ in range(3)]
name = next(each for each in sys.modules if each.startswith("kernel_backend.snapshots.loaded.s_"))
assert "nn.Linear" in inspect.getsource(sys.modules[name].model)
print(len(list(Path(tempfile.gettempdir()).iterdir())))
"""


def test_a_model_that_is_loaded_often_leaves_nothing_in_the_temporary_folder(
    served: Served, job: Job, tmp_path: Path
) -> None:
    commit(tmp_path, 5)
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, "-c", LOADS, served.url, TOKEN]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
    assert list(folder.iterdir()) == []


NET = """\
import torch
from torch import nn
SCALE = 2.0
def scaled(x): return x * SCALE
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, width))
    def forward(self, x): return scaled(x @ self.weight.T)
"""
OF_A_CLASS = (
    NET
    + """\
def model(width=2): return Net(width)
def train_data(): return []
def loss(output, target): return 0
def metrics(output, target): return {"accuracy": 0.0}
"""
)


def test_a_loaded_model_is_read_by_another_process_tomorrow(client: Client, tmp_path: Path) -> None:
    loaded = submitted(client, OF_A_CLASS)
    commit(tmp_path, 5)
    net, file = loaded.load(wait=False), tmp_path / "net.pt"
    assert type(loaded.load(wait=False)) is type(net)
    torch.save(net, file)
    read = f"import torch; net = torch.load({str(file)!r}, weights_only=False); print(net(torch.ones(1, 2)).item())"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("20.0\n", "")


SCALE = """\
class Scale:
    def __init__(self, by): self.by = by
    def times(self, x): return x * self.by
def model(by=2): return Scale(by)
def train_data(): return []
def loss(output, target): return 0
def metrics(output, target): return {"accuracy": 0.0}
"""
CELL = """\
class Twice:
    def times(self, x): return x * 2
twice = Twice()
def model(): return {}
def train_data(): ...
def loss(output, target): ..."""
JOB = """
import sys
from pathlib import Path
from kernel_backend.runner.definition.load import load

model = load(Path(sys.argv[1]), Path.cwd()).module.model()
print(model.times(7), type(model).__module__)
"""


def run_in_another_home(data: bytes, folder: Path) -> list[str]:
    """Run a job of this archive in a home without the notebook's files; return the lines that it prints."""
    unpack(data, folder / "code")
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(folder / "code")],
        env={**os.environ, "DAYLIGHT_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "home" / "loaded").exists()
    return done.stdout.split()


def capturing(name: str, value: object) -> tuple[str, bytes]:
    """Return the archive of a cell that trains a captured value of this name."""
    capture = capture_cell(["x = 1"], CELL.format(name), {name: value}, captured=[name])
    assert capture.problems == ()
    environment = Environment(python="3", implementation="", platform="", cpu="", cores=1, distributions={})
    fields = {"pieces": capture.pieces, "roles_from": capture.roles_from, "captured": capture.captured}
    snapshot = Snapshot(version="0.1.0", numerics=1, environment=environment, contract=CONTRACT, **fields)
    return pack_snapshot(capture.source, snapshot, capture.files)


def test_a_captured_model_of_a_loaded_class_is_read_where_the_home_is_another(
    job: Job, client: Client, tmp_path: Path
) -> None:
    first = submitted(client, SCALE)
    scale = loaded(first.overview.experiment.snapshot, lambda: client.archive(first.number))
    id, data = capturing("net", scale.model(3))
    assert run_in_another_home(data, tmp_path / "one") == ["21", scale.__name__]
    # To import the second definition takes the value that it captured, and so the first one.
    second = loaded(id, lambda: data)
    assert second.net.by == 3
    assert run_in_another_home(capturing("other", second.Twice())[1], tmp_path / "two") == ["14", second.__name__]


@pytest.mark.parametrize(
    ("change", "own"),
    [
        (("", ""), True),
        (("# nothing", ""), True),
        (("SCALE = 2.0", "SCALE = 3.0"), False),
        (("x * SCALE", "x / SCALE"), False),
        (("torch.zeros", "torch.ones"), False),
        (("self.weight.T)", "self.weight.T) * 1"), False),
    ],
)
def test_a_loaded_model_is_of_the_notebooks_class_where_that_is_the_same(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], own: bool
) -> None:
    notebook = types.ModuleType("__main__")
    exec("# of a cell\n" + NET.replace(*change), notebook.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    loaded = submitted(client, OF_A_CLASS)
    commit(tmp_path, 5)
    net = loaded.load(wait=False)
    assert isinstance(net, notebook.Net) is own
    assert net(torch.ones(1, 2)).item() == 20.0


def test_a_module_that_has_no_truth_is_loaded(job: Job, tmp_path: Path) -> None:
    made = torch.compile(torch.nn.Linear(2, 1), backend="eager")
    commit(tmp_path, 5, modules=NamedModules({"net": made}, list).state_dict())
    net = job.load("net", wait=False)
    with pytest.raises(TypeError, match="len"):
        bool(net)
    assert torch.equal(net(torch.ones(1, 2)), made(torch.ones(1, 2)))


def test_an_experiment_that_a_cell_needs_is_told_by_the_model_that_it_gives(job: Job) -> None:
    cell = "def model(): return {}\ndef train_data(): ...\ndef loss(): ..."
    capture = capture_cell(["net = job.load()"], cell.format("net"), {"job": job})
    assert "uses 'job' (line 1), an experiment, which a job cannot reach. Add --capture net." in told(capture)
    capture = capture_cell(["x = 1"], cell.format("job.load()"), {"job": job})
    assert "Write net = job.load() in another cell and add --capture net." in told(capture)
    capture = capture_cell(["x = 1"], cell.format("job"), {"job": job}, captured=["job"])
    assert "--capture job: it is an experiment, which a job cannot reach. Take its model: write net =" in told(capture)


def told(capture: Capture) -> str:
    return "\n".join(each.message for each in capture.problems)
