"""Test Keras models with Keras' own `fit`: bits on one slot, results on several, and resumption after every kill."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from form_contract import FormContract
from gang import STAND, Trial, as_json

pytestmark = pytest.mark.distributed

# A functional model with BatchNorm and dropout, a metric of many states, and callbacks with states of their own: the
# second epoch is no improvement by `min_delta`, so that it ends with another learning rate.
CELL = f"""
import time
import keras
import numpy as np
import torch
{STAND}
class Stand(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen, self.count = 0, keras.Variable(0.0)
    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        self.count.assign_add(1.0)
        stand()
def data():
    random = np.random.default_rng(7)
    x = random.standard_normal((90, 16)).astype("float32")
    return x, (x[:, :4].sum(1) > 0).astype("int64")
def train_data(data): return data[0][:70], data[1][:70]
def validation_data(data): return data[0][70:], data[1][70:]
def callbacks():
    return [
        Stand(),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=10.0),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, restore_best_weights=True),
        keras.callbacks.CSVLogger("log.csv"),
    ]
def model(width=24, rate=0.2, lr=1e-2):
    inputs = keras.Input((16,))
    x = keras.layers.Dense(width, use_bias=False)(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.Dropout(rate)(x)
    net = keras.Model(inputs, keras.layers.Dense(2)(x))
    net.compile(
        optimizer=keras.optimizers.Adam(lr),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return net
"""


@pytest.mark.parametrize(
    ("slots", "backend"),
    [
        pytest.param(1, "torch", marks=pytest.mark.long),
        (2, "horovod"),
        pytest.param(2, "torch", marks=pytest.mark.long),
    ],
)
def test_a_kill_in_the_middle_of_an_epoch_changes_no_bit(tmp_path, slots, backend):
    whole = Trial(tmp_path / "whole", CELL, slots=slots, backend=backend)
    first = whole.run()
    assert first.codes == [0] * slots, first.logs()
    trial = Trial(tmp_path / "killed", CELL, slots=slots, backend=backend, every="1steps")
    killed = trial.start(hold=9).reaches(8).kill(slots - 1)
    assert 0 not in killed.codes, killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0] * slots, resumed.logs()
    assert resumed.started.resumed_from is not None
    assert trial.weights() == whole.weights()
    assert trial.parts() == whole.parts()
    assert "variables" in trial.newest().state
    for part in ("callbacks", *(f"random-{rank}" for rank in range(slots))):
        assert as_json(trial.newest().state[part]) == as_json(whole.newest().state[part])
    assert trial.newest().state["random-0"]["kept"]["callbacks[0].seen"] == 12
    assert (trial.folder / "log.csv").read_text() == (whole.folder / "log.csv").read_text()
    assert as_json(resumed.reports("validation")[12]) == as_json(first.reports("validation")[12])
    if slots == 1:
        assert plainly_trained(whole, tmp_path) == whole.weights()


class TestContract(FormContract):
    """Test that Keras keeps what every form promises."""

    source = CELL
    diverging = CELL.replace("Adam(lr)", "SGD(float('inf'))")


# The same, as most people write it: the cell calls `fit`, on data that it splits off, in an order of its own.
FIT = (
    CELL.replace("def train_data(data): return data[0][:70], data[1][:70]\n", "")
    + """
rows, labels = data()
EPOCHS = 1
net = model()
history = net.fit(
    rows, labels, batch_size=12, epochs=EPOCHS, validation_split=0.25, shuffle=False, class_weight={0: 1.0, 1: 2.0},
    callbacks=callbacks(),
)
"""
)


def test_a_cell_that_calls_fit_goes_on_after_a_kill_to_the_same_bits_and_history(tmp_path):
    whole = Trial(tmp_path / "whole", FIT)
    assert (first := whole.run()).codes == [0, 0], first.logs()
    trial = Trial(tmp_path / "killed", FIT, every="1steps")
    killed = trial.start(hold=9).reaches(8).kill(1)
    assert 0 not in killed.codes, killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0, 0], resumed.logs()
    assert resumed.started.resumed_from is not None
    assert trial.parts() == whole.parts()
    for part in ("callbacks", "random-0", "random-1"):
        assert as_json(trial.newest().state[part]) == as_json(whole.newest().state[part])
    assert len(first.reports("validation")) == 2  # by the job's epochs, over that of the cell's constant


def test_a_rank_that_imports_keras_itself_draws_what_a_forked_one_draws(tmp_path):
    (tmp_path / "definition.py").write_text("import keras, random\ndrawn = random.random()\n" + FIT)
    text = """
import random, sys
from pathlib import Path
from kernel_backend.runner.definition.load import load
random.seed(5)
code = Path(sys.argv[1])
print(load(code, code).module.drawn)
"""
    found = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(found.stdout) == random.Random(5).random()


def test_a_training_that_is_killed_once_it_has_ended_is_left_as_it_is(tmp_path):
    trial = Trial(tmp_path, CELL, slots=2)
    first = trial.run()
    assert first.codes == [0, 0], first.logs()
    before = trial.newest()
    again = trial.run(trial.pinned())
    assert again.codes == [0, 0], again.logs()
    after = trial.newest()
    assert after.parts == before.parts
    assert as_json(after.state) == as_json(before.state)


# What the cell's author would write: the order of samples and the seed of the model are the runner's.
PLAINLY = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import torch
torch.set_num_threads(1)
from kernel_backend.runner.data.permutation import Permutation
from kernel_backend.runner.determinism import seeds
scope = {}
exec(open(sys.argv[1]).read(), scope)
import keras
x, y = scope["train_data"](scope["data"]())
order = [int(each) for epoch in range(2) for each in Permutation(0, epoch, 70).slice(0, 70)]
class Ordered:
    epoch = 0
    def __len__(self): return 70
    def __iter__(self): return iter(order[self.epoch * 70 :][:70])
class Counted(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None): ordered.epoch = epoch
ordered = Ordered()
def loader(x, y, sampler=None):  # which draws from no generator that dropout draws from
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


def plainly_trained(trial: Trial, folder: Path) -> dict[str, bytes]:
    """Return the weights that Keras trains without Daylight, by their names in a checkpoint."""
    code, found = trial.folder / "code" / "definition.py", folder / "plain.npz"
    run = [sys.executable, "-c", PLAINLY, str(code), str(found), str(trial.checkpoints)]
    subprocess.run(run, check=True, cwd=folder)
    arrays = np.load(found)
    return {name: arrays[f"arr_{place}"].tobytes() for place, name in enumerate(sorted(trial.weights()))}


# Nothing is learned, so that what is measured does not depend on the number of slots.
MEASURED = """
import keras
import numpy as np
import torch
def data():
    random = np.random.default_rng(7)
    x = random.standard_normal((50, 4)).astype("float32")
    return x, (x[:, :2].sum(1) + random.standard_normal(50) > 0).astype("float32")[:, None]
def train_data(data): return data[0][:27], data[1][:27], np.linspace(0, 2, 27, dtype="float32")
def validation_data(data):
    x, y = map(torch.from_numpy, data)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[27:], y[27:]), batch_size=12)
def model():
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    metrics = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.F1Score("macro", threshold=0.5, name="f1")]
    net.compile(optimizer=keras.optimizers.SGD(0.0), loss="binary_crossentropy", metrics=metrics)
    return net
"""


def test_metrics_and_weighted_losses_are_those_of_all_samples_on_any_number_of_slots(tmp_path):
    reports = {}
    for slots in (1, 2):
        run = Trial(tmp_path / f"{slots}", MEASURED, slots=slots, backend="torch", epochs=1).run()
        assert run.codes == [0] * slots, run.logs()
        (validated,) = run.reports("validation").values()
        trained = run.reports("training")
        reports[slots] = {**trained[max(trained)], **validated}
    assert reports[1].keys() >= {"loss", "accuracy", "auc", "val_loss", "val_accuracy", "val_auc", "f1", "val_f1"}
    assert reports[2] == pytest.approx(reports[1], rel=1e-5)


def test_a_loss_that_is_not_finite_fails_the_trial(tmp_path):
    cell = MEASURED.replace("SGD(0.0)", "SGD(float('inf'))").replace("binary_crossentropy", "mse")
    run = Trial(tmp_path, cell, slots=1, epochs=3).run()
    assert run.codes != [0]
    assert "NotFinite" in run.logs()
    assert "--on-nan note trains on" in run.logs()


def test_a_metric_of_whole_batches_is_refused_on_several_slots(tmp_path):
    cell = MEASURED.replace('"accuracy", ', "lambda y, p: keras.ops.max(p), ")
    run = Trial(tmp_path, cell, slots=2, backend="torch", epochs=1).run()
    assert 0 not in run.codes
    assert "is one number of a batch" in run.logs()


def test_states_of_callbacks_reach_the_ranks_that_write_no_files(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    from kernel_backend.runner.forms.keras.state import CallbackState
    from kernel_backend.runner.forms.keras.user_callbacks import callbacks_of

    def made(rank):
        both = [keras.callbacks.CSVLogger("log.csv"), keras.callbacks.EarlyStopping(patience=3)]
        return callbacks_of(both, rank, resumes=False)

    first, second = made(0), made(1)
    assert [type(each).__name__ for each in second] == ["Callback", "EarlyStopping"]
    first[1].wait, first[1].best = 2, 0.25
    CallbackState(second).load_state_dict(CallbackState(first).state_dict())
    assert (second[1].wait, second[1].best) == (2, 0.25)


def test_a_restored_callback_chooses_its_comparison_once(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    from kernel_backend.runner.forms.keras.state import CallbackState

    def made():
        found = keras.callbacks.EarlyStopping(monitor="loss", min_delta=0.5)
        found.set_model(keras.Sequential())
        return found

    first, second, third = made(), made(), made()
    first.on_epoch_end(0, {"loss": 2.0})
    saved = CallbackState([first]).state_dict()
    CallbackState([second]).load_state_dict(saved)
    assert second.monitor_op is keras.ops.less
    del saved["0 EarlyStopping"]["value"]["monitor_op"]  # as checkpoints were before they held it
    CallbackState([third]).load_state_dict(saved)
    for each in (first, second, third):
        each.on_epoch_end(1, {"loss": 1.75})
        assert (each.min_delta, each.best, each.wait) == (-0.5, 2.0, 1)
