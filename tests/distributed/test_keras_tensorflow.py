"""Test Keras models on TensorFlow: the bits of Keras' own `fit` on one slot, one training on several, each kill."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from form_contract import FormContract
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


@pytest.fixture(scope="module")
def wholes(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Trial, Any]]:
    """Provide a function `wholes(slots)` that returns a training without a fault, and its attempt; each is run once."""
    made: dict[int, tuple[Trial, Any]] = {}

    def whole(slots: int) -> tuple[Trial, Any]:
        if slots not in made:
            folder = tmp_path_factory.mktemp("whole")
            trial = OnTensorFlow(folder, CELL, slots=slots, backend="horovod", service_home=home)
            attempt = trial.run()
            assert attempt.codes == [0] * slots, attempt.logs()
            made[slots] = trial, attempt
        return made[slots]

    return whole


@pytest.mark.parametrize("slots", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_kill_in_the_middle_of_an_epoch_changes_no_bit(wholes, tmp_path, home, slots):
    whole, first = wholes(slots)
    assert first.started.guarantee.startswith("reproducible: a kill")
    # Over torch, and not over Horovod as before: sums over two ranks are the same.
    trial = OnTensorFlow(tmp_path, CELL, slots=slots, every="1steps", service_home=home)
    killed = trial.start(hold=9).reaches(8).kill(slots - 1)
    assert 0 not in killed.codes, killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0] * slots, resumed.logs()
    assert resumed.started.resumed_from is not None
    assert trial.weights() == whole.weights()
    assert trial.parts() == whole.parts()
    for part in ("callbacks", *(f"random-{rank}" for rank in range(slots))):
        assert as_json(trial.newest().state[part]) == as_json(whole.newest().state[part])
    assert (trial.folder / "log.csv").read_text() == (whole.folder / "log.csv").read_text()
    assert as_json(resumed.reports("validation")[12]) == as_json(first.reports("validation")[12])


def test_one_slot_trains_the_bits_that_keras_alone_trains(wholes, python, tmp_path):
    whole, _ = wholes(1)
    assert plainly_trained(whole, tmp_path, python) == whole.weights()


# Samples with weights, the last batch with one, and an embedding, whose gradients name rows. The first weights are
# constants, as each backend draws others.
LEARNED = """
import keras
import numpy as np
import torch
random = np.random.default_rng(7)
x = random.integers(0, 9, (45, 4))
y = (x[:, :2].sum(1) + random.standard_normal(45) > 8).astype("float32")[:, None]
net = keras.Sequential([
    keras.Input((4,)),
    keras.layers.Embedding(9, 3, embeddings_initializer=keras.initializers.Constant(0.1)),
    keras.layers.Flatten(),
    keras.layers.Dense(2, activation="tanh", kernel_initializer=keras.initializers.Constant(0.3)),
    keras.layers.Dense(1, activation="sigmoid", kernel_initializer="ones", kernel_regularizer="l2"),
])
metrics = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.F1Score("macro", threshold=0.5, name="f1")]
net.compile(keras.optimizers.Adam(0.05, global_clipnorm=0.5), "binary_crossentropy", metrics=metrics)
history = net.fit(
    x[:25], y[:25], sample_weight=np.linspace(0, 2, 25, dtype="float32"), batch_size=12, epochs=3,
    validation_data=(x[25:], y[25:]),
)
"""


def test_two_slots_train_what_one_slot_on_torch_trains_under_the_same_curves(tmp_path, home):
    trials = [
        Trial(tmp_path / "torch", LEARNED, slots=1),
        OnTensorFlow(tmp_path / "tensorflow", "import tensorflow as tf\n" + LEARNED, slots=2, service_home=home),
    ]
    found = []
    for trial in trials:
        run = trial.run()
        assert run.codes == [0] * trial.slots, run.logs()
        trained, validated = run.reports("training"), run.reports("validation")
        assert len(validated) == trial.epochs
        sums = {name.partition("/")[0]: each.double().sum().item() for name, each in trial.model().items()}
        found.append({**trained[max(trained)], **validated[max(validated)], **sums})
    assert found[0].keys() >= {"loss", "accuracy", "auc", "f1", "val_loss", "val_accuracy", "val_auc", "val_f1"}
    assert found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.long
class TestContract(FormContract):
    """Test that Keras on TensorFlow keeps what every form promises, on two slots."""

    source = CELL
    diverging = CELL.replace("Adam(lr)", "SGD(float('inf'))")
    slots = 2
    home: ClassVar[Path]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _of_home(cls, home: Path) -> None:
        cls.home = home

    @classmethod
    def trial(cls, folder: Path, source: str = "", **more: Any) -> Trial:
        """Return a trial of the cell in a Python with TensorFlow."""
        return OnTensorFlow(folder, source or cls.source, slots=cls.slots, service_home=cls.home, **more)


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

# And a step that is not compiled, in which this rank uses the first of three weights, and another one the second.
# The latest weights are sent first.
from kernel_backend.runner.forms.keras.gradients import StepGradients
from kernel_backend.runner.ranks.backends import SingleRank
class Other(SingleRank):
    def allreduce_sum(self, tensor, name):
        return tensor.add_(torch.tensor([0.0, 1.0, 0.0] if name.endswith("used") else [3.0, 0.0, 0.0]))
sgd = keras.optimizers.SGD(1.0)
weights = [keras.Variable([0.0] * size) for size in (2, 1, 1)]
step = StepGradients(Other(), lambda: 0.5, torch.device("cpu")).applied("sgd", sgd)
step([tf.constant([2.0, 4.0]), None, None], weights)
assert [each.numpy().tolist() for each in weights] == [[-1.0, -2.0], [-3.0], [0.0]]
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
