"""Test that each notebook of `binder/` runs from top to bottom, in a real kernel, and that its models can be exported.

The trainings have a small size.

`make test` runs the notebooks of OFTEN, `make test-long` all of them; the forms of training that the others show are
tested in tests/distributed. What the models have learned at the end is tested by the notebooks at their own size.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.model.cluster.input_cache import ROOT
from tests.notebook.cells import shown
from tests.notebook.conftest import BINDER
from tests.support.locked import environment, kernel_of_tensorflow
from tests.support.object_store import object_store
from tests.support.world import World

pytestmark = [pytest.mark.notebook, pytest.mark.distributed]

CELL_S = 300
# What makes each training small: what its notebook says, and what it says here.
SMALL = {
    "architectures": [("--trials 12 --epochs 8", "--trials 2 --epochs 2"), ("--epochs 12 --wait", "--epochs 2 --wait")],
    "bucket": [("--epochs 8", "--epochs 1")],
    "cnn": [("--epochs 8", "--epochs 1")],
    "contrastive": [("--epochs 6", "--epochs 1")],
    "diffusion": [("--epochs 30", "--epochs 1")],
    "gan": [("--epochs 40", "--epochs 1")],
    "hugging-face": [("num_train_epochs=10", "num_train_epochs=1")],
    "judge": [("--epochs 12", "--epochs 2"), ("time.sleep(0.1)", "time.sleep(0.0)")],
    "keras": [("--epochs 6", "--epochs 1")],
    "keras-tensorflow": [("--epochs 10", "--slots 2 --epochs 1")],
    "lightning": [("max_epochs=6", "max_epochs=1")],
    "lora": [("--epochs 8 --out first", "--epochs 1 --out first"), ("--epochs 8 --capture", "--epochs 1 --capture")],
    "predict": [("--trials 8 --epochs 8", "--trials 2 --epochs 2"), ("ROWS = 1_000_000", "ROWS = 3_000")],
    "raw-loop": [("EPOCHS = 2e-3, 24, 8", "EPOCHS = 2e-3, 24, 1")],
    "reinforce": [("updates=60", "updates=2")],
    "search": [("--trials 12 --epochs 16", "--trials 2 --epochs 2")],
    "text": [("--epochs 4", "--epochs 1")],
    "time-series": [("--epochs 6", "--epochs 1")],
}
OFTEN = {"predict", "bucket"}  # trials, the best of them and predictions; data of a store
ELSEWHERE = {"quickstart"}  # it runs in full: test_quickstart.py
PICTURES = {"architectures": 2, "hugging-face": 0, "judge": 2, "lightning": 0}  # one in each of the others


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with object_store() as url:
        monkeypatch.setenv("BUCKET", f"{url}/digits")
        monkeypatch.setenv(ROOT, str(tmp_path / "cache"))
        yield


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in BINDER.glob("*.ipynb")} == SMALL.keys() | ELSEWHERE
    assert SMALL.keys() > OFTEN


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in OFTEN else pytest.mark.long) for each in SMALL]
)
def test_it_runs_and_all_that_it_trains_is_completed(
    name: str,
    world: World,
    executed: Callable[..., list[Any]],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if name == "bucket":
        request.getfixturevalue("bucket")
        world.serve()
        world.kill_service()  # the next one has the credentials
    client = world.serve()
    before = len(client.experiments())
    kernel = "python3"
    if name == "keras-tensorflow":
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
        kernel = kernel_of_tensorflow(tmp_path)
    cells = executed(name, CELL_S, *SMALL[name], kernel=kernel)
    trained = client.experiments()[: len(client.experiments()) - before]
    assert {each.state for each in trained} == {"completed"}
    submitted = [
        cell for cell in cells if cell.source.startswith(("%%dlsubmit", "%dl rerun")) or "job.evaluate(" in cell.source
    ]
    assert len(trained) == len(submitted) > 0
    # A search draws pictures in its view too.
    drawn = [each for cell in cells if cell.cell_type == "code" and "%dl" not in cell.source for each in shown(cell)]
    assert sum("image/png" in each for each in drawn) == PICTURES.get(name, 1)
    python = environment() if kernel != "python3" else sys.executable
    for number in (each.experiment.number for each in trained if not each.experiment.config.uses_model):
        to = tmp_path / f"model-{number}"
        done = subprocess.run(
            [python, "-m", "kernel_backend.cli", "export", str(number), "--model", str(to)],
            env={**os.environ, **world.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ": bit-equal on " in done.stdout, done.stderr
