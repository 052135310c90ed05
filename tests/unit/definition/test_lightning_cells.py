"""Test Lightning cells: their classes and calls, the values read from them, and errors."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.binding import configured
from kernel_backend.definition.lightning.calls import FIT, made_again
from kernel_backend.definition.lightning.source import defined_only, importable
from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config, Metric

MODULE = """
import lightning as L
class Lit(L.LightningModule):
    def __init__(self, width: int = 32, lr=1e-3, loss_fn=make()):
        self.lr = lr
    def training_step(self, batch, batch_idx): self.log("train_loss", 0)
    def validation_step(self, batch, batch_idx): self.log("val_loss", 0)
    def configure_optimizers(self): ...
"""
DATA = """
class Data(L.LightningDataModule):
    def __init__(self, batch_size=32, lr=1e-3): ...
    def train_dataloader(self): ...
"""
FITS = """
trainer = L.Trainer(max_epochs=5, gradient_clip_val=1, precision="bf16-mixed", devices=4, callbacks=[1])
module = Lit(64, lr=0.1)
trainer.fit(module, Data(batch_size=8, lr=0.1))
trainer.test(module)
print("done")
"""


def test_arguments_of_classes_are_hyperparameters_and_literals_of_the_call_their_defaults():
    definition = parse(MODULE + DATA + FITS)
    assert definition.summary == "lightning: Lit (as module) Data (as datamodule)"
    defaults = {name: each.default for name, each in definition.hyperparameters.items()}
    assert defaults == {"width": 64, "lr": 0.1, "batch_size": 8}
    assert definition.bind({"width": 16}) == {"width": 16, "lr": 0.1, "batch_size": 8}


def test_a_cell_without_a_fit_has_the_defaults_of_its_signatures():
    definition = parse(MODULE + DATA)
    assert definition.bind({}) == {"width": 32, "lr": 1e-3, "batch_size": 32}
    with pytest.raises(InvalidDefinition, match=r"depth is no hyperparameter .*; there are: width lr batch_size"):
        definition.bind({"depth": 3})


def test_one_name_with_two_defaults_is_told():
    with pytest.raises(InvalidDefinition, match=r"lr has two defaults: 0\.001 in module .* and 0\.1 in datamodule"):
        parse(MODULE + DATA.replace("lr=1e-3", "lr=0.1"))


def test_arguments_of_the_trainer_are_defaults_of_options():
    definition = parse(MODULE + DATA + FITS)
    config = configured(definition, Config())
    assert (config.epochs, config.clip, config.amp, config.metric) == (5, 1.0, "bf16", Metric(name="val_loss"))
    assert configured(definition, Config(epochs=2)).epochs == 2
    assert configured(definition, Config(steps=9)).epochs == 1
    assert any("devices=4 of Trainer (line 14) is not used: --slots says how many" in each for each in definition.hints)
    assert any("what follows trainer.fit (lines 17 to 18) is not run in the job" in each for each in definition.hints)


def test_the_metric_is_the_one_that_callbacks_monitor():
    stops = MODULE + DATA + 'trainer = L.Trainer(callbacks=[EarlyStopping(monitor="val_acc", mode="max")])\n'
    assert parse(stops).settings["metric"] == {"name": "val_acc", "mode": "max"}
    keeps = stops.replace("callbacks=[", 'callbacks=[ModelCheckpoint(monitor="val_f1", mode="max"), ')
    assert parse(keeps).settings["metric"] == {"name": "val_f1", "mode": "max"}


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ('strategy="deepspeed"', "Daylight sums the gradients of whole models itself"),
        ('accelerator="tpu"', "slots are CPUs or GPUs"),
        ("fast_dev_run=True", "write --steps 1"),
        ('max_time="00:01:00"', "write --max-time"),
        ("sync_batchnorm=True", "BatchNorm's statistics are those of each slot's share"),
        ("gpus=2", "Trainer of Lightning 2 has no such argument"),
    ],
)
def test_what_a_job_cannot_have_is_refused_by_name(argument, says):
    with pytest.raises(InvalidDefinition, match=rf"{argument.replace(chr(34), '.')} of Trainer \(line 13\).*{says}"):
        parse(f"{MODULE}{DATA}trainer = L.Trainer({argument})\ntrainer.fit(Lit(), Data())\n")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (MODULE, r"nothing gives Lit \(line 3\) its training data: write a train_dataloader\(self\)"),
        (MODULE.replace("configure_optimizers", "configure") + DATA, "class Lit .line 3. has no configure_optimizers"),
        (MODULE + DATA + "class Other(Lit): ...\nclass More(Lit): ...\n", "several classes of LightningModule: Other"),
        (
            MODULE + DATA + "def main():\n    trainer = L.Trainer()\n    trainer.fit(Lit(), Data())\n",
            r"trainer.fit\(Lit\(\), Data\(\)\) .line 15. stands in a function",
        ),
        (MODULE + DATA + FITS.replace("Data(batch", 'ckpt_path="last", datamodule=Data(batch'), "ckpt_path of fit"),
        (MODULE + DATA + FITS + FITS, "the cell fits twice"),
    ],
)
def test_cells_that_cannot_be_trained_say_why(source, says):
    with pytest.raises(InvalidDefinition, match=says):
        parse(source)


def test_options_that_lightning_has_in_its_own_way_are_refused():
    definition = parse(MODULE + DATA)
    with pytest.raises(InvalidDefinition, match=r"--batch-size .*: leave it out, .* the batch size of its DataLoader"):
        check_options(definition, Config(batch_size=8))
    check_options(definition, Config(epochs=3))


def test_functions_model_and_loss_make_a_definition_of_functions():
    functions = "def model(): return Lit()\ndef train_data(): ...\ndef loss(output, target): ...\n"
    assert parse(MODULE + functions).form == "functions"
    assert parse(MODULE + "def train_data(): ...\n").form == "lightning"


SMALL = """
from __future__ import annotations
class LightningModule: ...
class LightningDataModule: ...
class Lit(LightningModule):
    def __init__(self, width, lr=1e-3): self.values = width, lr
    def training_step(self): ...
    def configure_optimizers(self): ...
    def train_dataloader(self): ...
if __name__ == "__main__":
    trainer = Trainer(max_epochs=5)
    model = Lit(2 * 8)
    trainer.fit(model)
    raise SystemExit
"""


def test_importing_a_cell_trains_nothing_and_records_what_is_to_be_trained():
    definition = parse(SMALL)
    tree = importable(ast.parse(SMALL), 1, definition.given({"width": 3, "lr": 0.5}))
    namespace: dict[str, object] = {"__name__": "definition"}
    exec(compile(tree, "cell", "exec"), namespace)
    call = namespace[FIT]
    assert call.trainer.arguments == {"max_epochs": 5}
    assert call.model.values == (3, 0.5)
    assert made_again(call.model, {"width": 4}).values == (4, 1e-3)
    with pytest.raises(InvalidDefinition, match=r"uses trainer\.global_rank before trainer\.fit"):
        _ = call.trainer.global_rank


def test_a_notebook_runs_what_a_cell_defines_and_not_its_fit():
    text = defined_only(MODULE + FITS + "after = 1\n")
    assert "class Lit" in text
    assert "module = Lit(64, lr=0.1)" in text
    assert "fit" not in text
    assert "Trainer" not in text
    assert "after" not in text
