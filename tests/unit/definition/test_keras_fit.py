"""Test cells that call Keras' `fit`: what is read from the call, what the notebook runs itself, and what is refused."""

from __future__ import annotations

import ast

import pytest

from jupyter_ext.magics.notebook_part import notebook_part
from kernel_backend.definition.binding import configured
from kernel_backend.definition.keras.source import importable
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config
from kernel_backend.model.syntax import module_tree

CELL = """\
import keras
width, EPOCHS = 64, 3
model = keras.Sequential([keras.layers.Dense(width), keras.layers.Dense(10)])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
stop = keras.callbacks.EarlyStopping(monitor="val_accuracy")
history = model.fit(x, y, batch_size=8, epochs=EPOCHS, validation_split=0.25, callbacks=[stop], verbose=0)
"""


def test_the_call_of_fit_gives_roles_length_and_batch_size():
    definition = parse(CELL)
    assert (definition.form, definition.of_functions) == ("keras", False)
    assert definition.roles == ("model", "train_data", "validation_data", "callbacks")
    assert definition.summary == "keras: model.fit (line 6)"
    config = configured(definition, Config())
    assert (config.epochs, config.batch_size) == (3, 8)
    assert (config.metric.name, config.metric.mode) == ("val_accuracy", "max")


def test_constants_of_the_cell_are_hyperparameters_but_for_its_length():
    definition = parse(CELL)
    assert definition.defaults == {"width": 64}
    assert definition.unknown("EPOCHS") == "EPOCHS is the number of epochs: write --epochs N"
    assert definition.unknown("batch_size") == "batch_size is the batch size: write --batch-size N"
    assert definition.unknown("optimizer").endswith(
        "write optimizer = 'adam' above, and optimizer=optimizer in the call"
    )
    assert definition.unknown("zeta") == "zeta is no hyperparameter; there are: width"


def test_values_of_a_trial_are_written_into_the_constants_above_the_recorded_call():
    module = importable(ast.parse(CELL), 1, {"width": 16}, {"epochs": 7, "batch_size": 8})
    text = ast.unparse(module)
    assert "width, EPOCHS = (16, 7)" in text
    assert "_daylight_fit = _daylight_calls.fit(model, x, y, batch_size=8, epochs=EPOCHS," in text
    assert "history" not in text
    assert [each.lineno for each in module.body] == [1, 2, 3, 4, 5, 6, 6]


@pytest.mark.parametrize(
    "text",
    [
        "def build():\n    m = keras.Sequential()\n    m.compile(loss='mse')\n    return m\nm = build()\nm.fit(x, y)",
        "from tensorflow import keras\nnet = keras.Sequential()\nnet.compile('adam', 'mse')\nnet.fit(x, y)",
        "net = keras.Model(a, b)\nnet.compile('adam', 'mse')\nif __name__ == '__main__':\n    net.fit(x, y)",
    ],
)
def test_a_model_that_is_compiled_anywhere_above_is_trained(text: str):
    definition = parse(f"import keras\n{text}\n")
    assert (definition.form, definition.settings["epochs"], definition.settings["batch_size"]) == ("keras", 1, 32)


def test_a_cell_with_a_function_of_data_consists_of_functions_and_must_not_train():
    with pytest.raises(InvalidDefinition, match="this cell trains by itself"):
        parse(CELL.replace("width, EPOCHS", "def train_data(): return x, y\nwidth, EPOCHS"))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("verbose=0", "**more", "model.fit(...) (line 6) has arguments that the cell does not show"),
        ("verbose=0", "initial_epoch=2", "has initial_epoch=2, which no job has: a restart continues"),
        ("verbose=0", "steps_per_epoch=5", "has steps_per_epoch=5, which no job has: an epoch is a pass"),
        ("epochs=EPOCHS", "epochs=count()", "has epochs=count(), which is not known at submit: write a number, or"),
        ("batch_size=8", "batch_size=True", "has batch_size=True, which is not known at submit"),
        ("fit(x, y, ", "fit(", "has no data: write fit(x, y)"),
        ("verbose=0)", "verbose=0)\nmodel.fit(x, y)", "the cell trains model twice (lines 6 and 7)"),
    ],
)
def test_what_a_job_cannot_do_is_refused_with_what_to_write(before: str, after: str, said: str):
    assert CELL.count(before) == 1
    with pytest.raises(InvalidDefinition) as refused:
        parse(CELL.replace(before, after))
    assert said in refused.value.message


def test_lines_behind_fit_are_named_as_not_run():
    (hint,) = parse(f"{CELL}print(history.history)\n").hints
    assert hint.startswith("line 7 and those below it are not run, as they stand behind fit: write them in a cell")


def test_the_notebook_runs_what_stands_above_fit():
    above, running = CELL.rpartition("history = ")[0], f"%%dlsubmit\n{CELL}print(1)\n"
    part = notebook_part(CELL, running, parse(CELL), module_tree(CELL), str)
    assert part.code.strip() == above.strip()
    assert part.recorded is not None
    assert "fit" not in part.recorded


def test_the_model_may_be_compiled_in_an_earlier_cell():
    above, _, fit = CELL.partition("stop = ")
    module, cell = module_tree(CELL), f"stop = {fit}"
    definition = parse(CELL, roles_from=5)
    assert definition.form == "keras"
    part = notebook_part(cell, f"%%dlsubmit\n{cell}", definition, module, str)
    assert part.code.strip() == 'stop = keras.callbacks.EarlyStopping(monitor="val_accuracy")'
    assert "Dense" in above
