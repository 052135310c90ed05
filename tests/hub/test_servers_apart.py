"""Test notebook servers that share no path with the service: a submission must contain all that it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import nbformat
import pytest

from kernel_backend.model.states import EXPERIMENT_ENDED
from tests.environments.index import needs_index
from tests.hub.hub import ROOT, Hub, Notebook
from tests.support import server_apart
from tests.support.world import until

pytestmark = pytest.mark.distributed

SPAWNER = """
from jupyterhub.spawner import SimpleLocalProcessSpawner

class Apart(SimpleLocalProcessSpawner):
    cmd = {command!r}

c.JupyterHub.spawner_class = Apart
c.Spawner.cmd = {command!r}
daylight["environment"]["UV_OFFLINE"] = "0"
"""

MODULE = "SCALE = 4.0\n\ndef scaled(x):\n    return x / SCALE\n"

CELL = """
%%dlsubmit --slots 1 --epochs 2 --batch-size 8 --threads 1 --wait --out job --include shift.txt lr=1e-2
from pathlib import Path
import torch
from torch import nn
import daylight
from scaling import scaled

def train_data():
    print("the data is made by a rank, with", FACTOR)
    x = scaled(torch.randn(64, 8, generator=torch.Generator().manual_seed(1)))
    return torch.utils.data.TensorDataset(x, FACTOR * x.sum(1, keepdim=True) + float(Path("shift.txt").read_text()))

def validation_data(train_data):
    daylight.run.artifact("shift.bin", "shift.txt")
    return torch.utils.data.Subset(train_data, range(16))

def model(width=16):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))

def optimizer(params, lr=1e-2):
    return torch.optim.AdamW(params, lr=lr)

def loss(output, target):
    return nn.functional.mse_loss(output, target)
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Start a hub whose notebook servers run in mount namespaces of their own."""
    pytest.importorskip("jupyterhub", reason="daylight[hub] is not installed")
    _need()
    folder = tmp_path_factory.mktemp("apart") / "hub"
    hidden = sorted({str(ROOT), tempfile.gettempdir()}, key=len)
    script = str(ROOT / "tests/support/server_apart.py")
    command = ["unshare", "--mount", sys.executable, "-P", script, str(ROOT), *hidden, "--"]
    hub = Hub(folder, SPAWNER.format(command=command))
    try:
        yield hub.start()
    finally:
        hub.close()


def _need() -> None:
    """Skip the test if namespaces cannot be created; in CI, fail instead."""
    lacking = [tool for tool in ("unshare", "mount") if shutil.which(tool) is None]
    reason = f"{', '.join(lacking)} not found" if lacking else ""
    if not reason:
        tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
        reason = f"namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else ""
    if reason:
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.fixture(scope="module")
def notebook(hub: Hub) -> Iterator[Notebook]:
    """Open a kernel in dave's server, with a module and a data file next to the notebook."""
    notebook = hub.notebook("dave")
    for name, text in (("scaling.py", MODULE), ("shift.txt", "0.5\n")):
        notebook.run(f"from pathlib import Path; Path({name!r}).write_text({text!r})")
    notebook.run("%load_ext daylight")
    yield notebook
    notebook.close()


def test_the_server_and_the_service_share_no_path(hub: Hub, notebook: Notebook) -> None:
    said = notebook.run("import os, sys; print(sys.prefix, os.getcwd(), os.listdir('.'))")
    assert said.startswith(f"{server_apart.PYTHON} {server_apart.HOME} ")
    assert "False False" in notebook.run(f"print(os.path.exists({str(hub.home)!r}), os.path.exists({sys.prefix!r}))")
    assert not server_apart.HOME.exists()
    assert not server_apart.PYTHON.exists()


@pytest.fixture(scope="module")
def submitted(hub: Hub, notebook: Notebook) -> int:
    """Train with a local module, a captured value and an included file, and watch it; return its number."""
    notebook.run("FACTOR = 3.0")
    said = notebook.run(CELL.strip())
    found = re.search(r"#(\d+)", said)
    assert found, said
    assert hub.client("dave").experiment(int(found[1])).state == "completed", said + hub.log[-3000:]
    return int(found[1])


def test_it_trains_with_the_interpreter_of_the_service(hub: Hub, submitted: int) -> None:
    overview = hub.client("dave").experiment(submitted)
    assert overview.experiment.python == sys.executable
    assert overview.experiment.cwd == str(server_apart.HOME)
    assert not any("not the packages" in each for each in overview.warnings)  # they are the same ones here


def test_a_view_gets_frames_through_the_service(notebook: Notebook, submitted: int) -> None:
    assert "Traceback" not in notebook.run(f"%dl show {submitted} --view widget")
    arrived = notebook.frames({"experiment", "trial", "artifact"})
    assert {each["experiment"] for each in arrived} == {submitted}


def test_the_log_has_what_a_rank_printed_with_the_captured_value(notebook: Notebook, submitted: int) -> None:
    assert "the data is made by a rank, with 3.0" in notebook.run(f"%dl logs {submitted}")


def test_the_weights_and_an_artifact_arrive_in_the_kernel(notebook: Notebook, submitted: int) -> None:
    assert notebook.run("print(tuple(job.load()(torch.zeros(2, 8)).shape))") == "(2, 1)\n"
    assert notebook.run("print(job.artifact('shift.bin'))") == "b'0.5\\n'\n"
    said = notebook.run("%dl artifacts {job.number} --out taken")
    assert notebook.run(f"print(Path({said.strip()!r}).read_text())") == "0.5\n\n"


@needs_index
@pytest.mark.long
def test_a_locked_environment_is_built_where_the_training_runs(hub: Hub, notebook: Notebook) -> None:
    locked = CELL.replace("--slots 1", "--slots 1 --env locked").replace("--wait ", "")
    said = notebook.run(
        locked.strip().replace("import torch\n", 'import sys\nprint("ranks use", sys.prefix)\nimport torch\n', 1)
    )
    found = re.search(r"#(\d+)", said)
    assert found, said
    client, number = hub.client("dave"), int(found[1])
    overview = until(
        lambda: (o := client.experiment(number)).experiment.state in EXPERIMENT_ENDED and o, "it ends", 600.0
    )
    assert overview.state == "completed", f"{overview.wait} {hub.log[-3000:]}"
    assert f"ranks use {hub.home / 'environments'}" in notebook.run(f"%dl logs {number}")
    assert not any("not in the locked environment" in each for each in overview.warnings), overview.warnings


@pytest.mark.long
def test_the_quickstart_runs_unchanged(notebook: Notebook) -> None:
    said = ""
    for cell in nbformat.read(ROOT / "binder" / "quickstart.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            said = notebook.run(cell.source)
            assert "Traceback" not in said, f"{cell.source}\n{said}"
    assert said.endswith("of 297 digits that it has never seen\n")
    assert float(said.split("%")[0]) >= 93


def test_no_file_of_the_user_lies_where_the_service_could_read_it(hub: Hub, submitted: int) -> None:
    assert not server_apart.HOME.exists()
    outside = [path for path in hub.folder.rglob("scaling.py") if not path.is_relative_to(hub.home)]
    assert outside == []
