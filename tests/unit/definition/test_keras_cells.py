"""Test Keras cells: their roles, the settings read from them, and errors before a start."""

from __future__ import annotations

import pytest

from kernel_backend.definition.binding import configured
from kernel_backend.definition.keras.cell import unsaved_draws
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.search.records import Search

CELL = """\
import keras
def train_data():
    return x, y
def validation_data():
    return x, y
def callbacks(patience=3):
    return [keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=patience)]
def model(width=64, lr=1e-3):
    net = keras.Sequential([keras.layers.Dense(width), keras.layers.Dense(10)])
    net.compile(optimizer=keras.optimizers.Adam(lr), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return net
"""


def test_a_function_that_compiles_a_model_is_the_definition():
    definition = parse(CELL)
    assert definition.form == "keras"
    assert definition.roles == ("model", "train_data", "validation_data", "callbacks")
    assert definition.defaults == {"width": 64, "lr": 1e-3, "patience": 3}
    metric = configured(definition, Config()).metric
    assert (metric.name, metric.mode) == ("val_accuracy", "max")


def test_the_loss_of_the_validation_is_the_metric_unless_a_callback_monitors_another():
    definition = parse(CELL.replace('monitor="val_accuracy", ', ""))
    metric = configured(definition, Config()).metric
    assert (metric.name, metric.mode) == ("val_loss", "min")


def test_a_helper_may_compile_the_model():
    source = CELL.replace("def model(", "def compiled(") + "def model(width=8):\n    return compiled(width)\n"
    assert parse(source).form == "keras"


def test_a_cell_with_a_loss_of_its_own_trains_a_keras_model_as_functions():
    source = CELL + "def loss(output, target):\n    return keras.ops.mean(output - target)\n"
    assert parse(source).form == "functions"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("import keras\n", "import keras\nimport tf_keras\n", "line 2 imports tf_keras, which is Keras 2"),
        (
            "import keras\n",
            'import os\nos.environ["KERAS_BACKEND"] = "torch"\nimport keras\nimport tensorflow as tf\n',
            "line 4 imports tensorflow, and this cell asks for Keras on torch",
        ),
        (
            "import keras\n",
            'import os\nos.environ["KERAS_BACKEND"] = "jax"\nimport keras\n',
            "os.environ['KERAS_BACKEND'] = 'jax' (line 2) asks for Keras on jax",
        ),
        (
            "import keras\n",
            'import os\n(os.environ or {})["KERAS_BACKEND"] = "jax"\nimport keras\n',
            "(os.environ or {})['KERAS_BACKEND'] = 'jax' (line 2) asks for Keras on jax",
        ),
        ("def train_data", "def data", "nothing gives the Keras model its training data"),
        (
            "def callbacks(patience=3):",
            "def optimizer(params):\n    return None\ndef callbacks(patience=3):",
            "optimizer (line 6) is not called",
        ),
    ],
)
def test_what_no_job_can_train_is_refused_by_name(before, after, said):
    with pytest.raises(InvalidDefinition) as refused:
        parse(CELL.replace(before, after, 1))
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("before", "backend"),
    [
        ("", "torch"),
        ('import os\nos.environ["KERAS_BACKEND"] = "torch"\n', "torch"),
        ('import os\nos.environ["KERAS_BACKEND"] = "tensorflow"\n', "tensorflow"),
        ("import tensorflow as tf\n", "tensorflow"),
        ("from tensorflow import data\n", "tensorflow"),
    ],
)
def test_the_backend_is_the_one_that_the_cell_names(before, backend):
    definition = parse(before + CELL)
    assert (definition.form, definition.keras_backend) == ("keras", backend)


def test_either_backend_trains_on_any_number_of_slots():
    definition = parse("import tensorflow as tf\n" + CELL)
    assert definition.summary == "keras on TensorFlow: model train_data validation_data callbacks"
    for each in (definition, parse(CELL)):
        for slots in (Config(slots=1), Config(slots=2), Config(slots=3, least_slots=1)):
            check_options(each, slots)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = tf.random.normal((2,))", "tf.random.normal"),
        ("import tensorflow\nx = tensorflow.random.shuffle(y)", "tensorflow.random.shuffle"),
        ("tf.random.set_seed(1)\nx = tf.random.stateless_uniform((2,), seed)", ""),
        ("x = keras.random.normal((2,))", ""),
    ],
)
def test_draws_from_a_state_of_tensorflow_are_found(code, found):
    assert unsaved_draws(code) == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"amp": "bf16"}, "--amp is for definitions of functions"),
        ({"clip": 1.0}, "global_clipnorm=1.0 of the optimizer"),
        ({"accumulate": 2}, "gradient_accumulation_steps=N"),
        ({"ema": 0.9}, "use_ema=True"),
        ({"logical_workers": 4}, "cut by the number of slots"),
    ],
)
def test_options_that_keras_code_decides_are_refused_with_what_to_write(given, said):
    with pytest.raises(InvalidDefinition) as refused:
        check_options(parse(CELL), Config(**given))
    assert said in refused.value.message
    check_options(parse(CELL), Config(batch_size=64, epochs=3, patience=2))


def test_a_search_needs_validation_data():
    definition = parse(CELL.replace("def validation_data", "def held_out"))
    with pytest.raises(InvalidDefinition) as refused:
        check_options(definition, Config(search=Search(method="random")))
    assert "a search goes by the validation" in refused.value.message


@pytest.mark.parametrize("fit", ["net = model()\nnet.fit(x, y)\n", "history = model(width=8).fit(x, y)\n"])
def test_a_cell_that_also_fits_its_model_is_refused(fit: str):
    with pytest.raises(InvalidDefinition, match=r"this cell trains by itself \(line 1[23]: .*fit\(x, y\)\)"):
        parse(CELL + fit)
    assert parse(fit + CELL, fit.count("\n") + 1).form == "keras"
    assert parse(CELL + "scaler = make()\nscaler.fit(x)\n").form == "keras"
