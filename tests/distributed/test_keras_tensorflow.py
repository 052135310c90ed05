"""Test Keras models on TensorFlow, on one slot: the bits of Keras' own `fit`, also after every kill."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gang import STAND, Trial, as_json
from test_keras import CELL as ON_TORCH

from tests.support.locked import environment
from tests.support.world import World

pytestmark = pytest.mark.distributed

# Dropout and a second epoch at another learning rate, and all of the data in TensorFlow's own types.
CELL = ON_TORCH.replace("import keras\n", "import tensorflow as tf\nimport keras\n", 1).replace(
    'x = keras.layers.Activation("relu")(x)', 'x = keras.layers.Lambda(tf.nn.relu, name="relu")(x)'
)
assert STAND in CELL


@pytest.fixture(scope="module")
def python() -> Path:
    """Provide a Python with TensorFlow."""
    return environment()


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Provide a home with its own forkserver, since shared forkservers have no TensorFlow."""
    with tempfile.TemporaryDirectory(prefix="daylight-") as folder:  # a short path, as sockets need
        world = World(Path(folder))
        yield Path(folder)
        world.close()


class OnTensorFlow(Trial):
    """Trial whose ranks run in a Python with TensorFlow."""

    def job(self, resume_from: str | None = None):
        """Return the launch spec of the next attempt."""
        return super().job(resume_from).model_copy(update={"python": str(environment())})


def test_a_kill_in_the_middle_of_an_epoch_changes_no_bit(python, tmp_path, home):
    whole = OnTensorFlow(tmp_path / "whole", CELL, slots=1, service_home=home)
    first = whole.run()
    assert first.codes == [0], first.logs()
    assert first.started.guarantee.startswith("reproducible: a kill")
    trial = OnTensorFlow(tmp_path / "killed", CELL, slots=1, every="1steps", service_home=home)
    killed = trial.start(hold=9).reaches(8).kill(0)
    assert killed.codes != [0], killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0], resumed.logs()
    assert resumed.started.resumed_from is not None
    assert trial.weights() == whole.weights()
    assert trial.parts() == whole.parts()
    assert as_json(trial.newest().state["callbacks"]) == as_json(whole.newest().state["callbacks"])
    assert (trial.folder / "log.csv").read_text() == (whole.folder / "log.csv").read_text()
    assert as_json(resumed.reports("validation")[12]) == as_json(first.reports("validation")[12])
    assert plainly_trained(whole, tmp_path, python) == whole.weights()


# What the cell's author would write: the order of samples and the seed of the model are the runner's.
PLAINLY = """
import os, sys
os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
import torch
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.determinism import seeds
scope = {}
exec(open(sys.argv[1]).read(), scope)
import keras
import tensorflow as tf
tf.random.set_seed(1)
tf.config.experimental.enable_op_determinism()
x, y = scope["train_data"](scope["data"]())
order = [int(each) for epoch in range(2) for each in Permutation(0, epoch, 70).slice(0, 70)]
class Ordered:
    epoch = 0
    def __len__(self): return 70
    def __iter__(self): return iter(order[self.epoch * 70 :][:70])
class Counted(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None): ordered.epoch = epoch
ordered = Ordered()
def loader(x, y, sampler=None):
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    return torch.utils.data.DataLoader(data, batch_size=12, sampler=sampler, generator=torch.Generator())
seeds.reseed(seeds.mix(0, "init", "model"))
net = scope["model"]()
validation = loader(*scope["validation_data"](scope["data"]()))
seeds.reseed(seeds.mix(0, "init", "callbacks"))
net.fit(loader(x, y, ordered), epochs=2, shuffle=False, validation_data=validation, verbose=0,
        callbacks=[Counted(), *scope["callbacks"]()])
import numpy as np
np.savez(sys.argv[2], *net.get_weights())

# And the trained model as a notebook loads it.
from pathlib import Path
from kernel_backend.trained.keras_weights import set_weights
from kernel_backend.checkpoints.directory import Directory
from kernel_backend.checkpoints.writer import load_model
home = Directory(Path(sys.argv[3]))
manifest = home.committed()[-1]
loaded = scope["model"]()
set_weights(loaded, manifest, load_model(home, manifest))
assert all((a == b).all() for a, b in zip(loaded.get_weights(), net.get_weights(), strict=True))
"""


def plainly_trained(trial: Trial, folder: Path, python: Path) -> dict[str, bytes]:
    """Return the weights that Keras trains without Daylight, by their names in a checkpoint."""
    code, found = trial.folder / "code" / "definition.py", folder / "plain.npz"
    subprocess.run([python, "-c", PLAINLY, str(code), str(found), str(trial.checkpoints)], check=True, cwd=folder)
    arrays = np.load(found)
    return {name: arrays[f"arr_{place}"].tobytes() for place, name in enumerate(sorted(trial.weights()))}


def test_an_error_of_the_data_is_raised_as_it_is(python, tmp_path, home):
    broken = """
class Broken(torch.utils.data.Dataset):
    def __len__(self): return 70
    def __getitem__(self, index):
        if index == 31:
            raise LookupError("sample 31 is missing")
        return torch.zeros(16), torch.tensor(0)
def train_data(): return Broken()
"""
    cell = CELL.replace("def train_data(data): return data[0][:70], data[1][:70]\n", broken)
    run = OnTensorFlow(tmp_path, cell, slots=1, epochs=1, batch_size=8, service_home=home).run()
    assert run.codes != [0]
    (failure,) = run.failures().values()
    assert (failure.type, failure.message) == ("LookupError", "sample 31 is missing")
