"""Test which part of a submitted cell the notebook executes."""

from __future__ import annotations

import ast

import pytest

from jupyter_ext.magics.notebook_part import NotebookPart, notebook_part
from kernel_backend.definition.parse import parse

TRAINER = """from transformers import Trainer, TrainingArguments
class Mine(Trainer):
    pass
"""
ARGUMENTS = 'args = TrainingArguments("out", num_train_epochs=1)\n'
MADE = "trainer = {}(model=model, args=args, train_dataset=data)\n"
LIGHTNING = """import lightning as L
class Lit(L.LightningModule):
    def training_step(self, batch, index): ...
    def configure_optimizers(self): ...
    def train_dataloader(self): ...
model, trainer = Lit(), None
trainer = L.Trainer(max_epochs=1)
"""


def part(cell: str, above: str = "") -> NotebookPart:
    """Return the notebook's part of a cell below the code of earlier cells."""
    source = above + cell
    definition = parse(source, above.count("\n") + 1)
    return notebook_part(cell, f"%%dlsubmit\n{cell}", definition, ast.parse(source), str)


@pytest.mark.parametrize("kind", ["Trainer", "Mine"])
def test_a_trainer_whose_class_is_of_an_earlier_cell_does_not_train_in_the_notebook(kind: str) -> None:
    cell = f"{ARGUMENTS}before = 1\n{MADE.format(kind)}trainer.train()\ntrainer.save_model('final')\n"
    found = part(cell, TRAINER)
    assert found.code == "args = TrainingArguments('out', num_train_epochs=1)\nbefore = 1"
    assert found.recorded == f"\n{ARGUMENTS}before = 1\n{MADE.format(kind)}".rstrip("\n")
    assert found.makes == MADE.format(kind).rstrip("\n")


@pytest.mark.parametrize("train", ["trainer.train()", "result = trainer.train()", "if True:\n    trainer.train()"])
def test_a_trainer_of_an_earlier_cell_does_not_train_in_the_notebook(train: str) -> None:
    found = part(f"before = 1\n{train}\nafter = trainer.evaluate()\n", TRAINER + ARGUMENTS + MADE.format("Trainer"))
    assert found == NotebookPart("before = 1", "\nbefore = 1")


def test_a_function_that_only_mentions_the_training_stays_in_the_notebook() -> None:
    cell = "def again():\n    trainer.train()\nx = 1\ntrainer.train()\n"
    assert part(cell, TRAINER + ARGUMENTS + MADE.format("Trainer")).code.endswith("x = 1")


def test_the_main_block_of_a_cell_ends_above_its_training() -> None:
    above = TRAINER + ARGUMENTS + MADE.format("Trainer")
    main = 'if __name__ == "__main__":\n'
    assert part(f"{main}    x = 1\n    trainer.train()\n", above) == NotebookPart("x = 1", f"\n{main}    x = 1")
    assert part(f"y = 1\n{main}    trainer.train()\n", above) == NotebookPart("y = 1", "\ny = 1")


def test_a_lightning_trainer_of_an_earlier_cell_does_not_fit_in_the_notebook() -> None:
    found = part("before = 1\ntrainer.fit(model)\nafter = trainer.test(model)\n", LIGHTNING)
    assert found == NotebookPart("before = 1", "\nbefore = 1")


def test_what_makes_a_lightning_trainer_is_kept_for_when_the_job_has_trained() -> None:
    made = "callback = Stop()\ntrainer = L.Trainer(max_epochs=2, callbacks=[callback])\n"
    found = part(f"{made}trainer.fit(model)\n", LIGHTNING)
    assert found.code == "callback = Stop()"
    assert found.makes == "trainer = L.Trainer(max_epochs=2, callbacks=[callback])"


def test_later_captures_learn_which_statements_of_a_loop_the_notebook_left_out() -> None:
    loop = "for epoch in range(2):\n    model(x).backward()\n"
    assert part(f"lr = 0.1\n{loop}") == NotebookPart("\nlr = 0.1\n\n\n", "\nlr = 0.1\n\n\n")


def test_a_definition_of_functions_is_executed_whole() -> None:
    cell = "def model(): ...\ndef train_data(): ...\ndef loss(): ...\n"
    assert part(cell) == NotebookPart(cell, None)
