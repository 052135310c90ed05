"""Test cells with a Hugging Face Trainer: hyperparameters, length, errors, and model."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.parse import parse
from kernel_backend.definition.trainer.source import FOUND, MODEL, importable, model_only
from kernel_backend.errors import InvalidDefinition

HEAD = "from transformers import Trainer, TrainingArguments\n"
CELL = f"""{HEAD}
config = dict(width=4)
model = list(config)
model.append("resized")
data = read()
args = TrainingArguments("out", learning_rate=1e-3, num_train_epochs=5, warmup_steps=steps(), ARGS)
trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data)
trainer.train()
trainer.save_model("end")
"""


def test_numbers_of_the_arguments_are_hyperparameters() -> None:
    found = parse(CELL.replace("ARGS", 'eval_strategy="epoch", metric_for_best_model="f1"'))
    assert (found.form, found.summary) == ("trainer", "trainer: Trainer, its model and data")
    assert found.defaults == {"learning_rate": 1e-3, "per_device_train_batch_size": 8, "weight_decay": 0.0}
    assert found.settings == {"epochs": 5, "seed": 42, "metric": {"name": "eval_f1", "mode": "max"}}
    assert found.hints == (
        "line 10 and those below it are not run, as they stand behind train(): write them in a cell of their own, "
        "which waits for this job",
    )


def test_steps_are_the_length_where_they_are_given() -> None:
    found = parse(CELL.replace("ARGS", 'max_steps=40, seed=3, eval_strategy="steps"'))
    assert found.settings == {"steps": 40, "seed": 3, "metric": {"name": "eval_loss", "mode": "min"}}


@pytest.mark.parametrize("kind", ["SFTConfig", "MyArguments"])
def test_arguments_of_another_class_keep_the_defaults_that_the_cell_leaves_to_them(kind: str) -> None:
    found = parse(CELL.replace("ARGS", "").replace("TrainingArguments(", f"{kind}("))
    assert found.defaults == {"learning_rate": 1e-3}


def test_data_that_nothing_validates_with_is_told() -> None:
    (hint, _) = parse(CELL.replace("ARGS", "")).hints
    assert hint.startswith("eval_dataset (line 8) is never read")


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (
            CELL.replace("ARGS", "fsdp='full_shard'"),
            7,
            "of TrainingArguments .line 7. is not possible",
        ),
        (CELL.replace("ARGS", "**more"), 7, "write them out for"),
        (CELL.replace("ARGS", "num_train_epochs=2.5").replace("num_train_epochs=5, ", ""), 7, "whole number of epochs"),
        (f"{HEAD}def main():\n    trainer = Trainer(m, a)\n    trainer.train()\nmain()\n", 3, "at the top level"),
        (f"{HEAD}trainer = Trainer(m, arguments)\ntrainer.train()\n", 2, "write args=TrainingArguments"),
        (CELL.replace("ARGS", "seed=number()"), 7, "leave it out, as --seed N sets it"),
        (
            f"from trl import GRPOTrainer\n{CELL.replace('ARGS', '').replace('= Trainer(', '= GRPOTrainer(')}",
            9,
            "%%dlrun",
        ),
        (f"{HEAD}args = TrainingArguments()\na = Trainer(m, args)\nb = Trainer(m, args)\n", 4, "a second Trainer"),
    ],
)
def test_what_a_job_cannot_have_is_refused_with_its_line(source: str, line: int, message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message) as refused:
        parse(source)
    assert refused.value.details["line"] == line


@pytest.mark.parametrize("train", ["trainer.train()", "result = trainer.train()", "", "if True:\n    trainer.train()"])
def test_a_trainer_is_found_however_it_is_trained(train: str) -> None:
    assert parse(CELL.replace("ARGS", "").replace("trainer.train()\n", f"{train}\n")).form == "trainer"


def test_the_trainer_of_an_earlier_cell_is_trained() -> None:
    assert parse(CELL.replace("ARGS", ""), roles_from=9).form == "trainer"


def test_a_module_is_imported_up_to_train_with_the_trials_values() -> None:
    tree = importable(ast.parse(CELL.replace("ARGS", "")), 1, {"learning_rate": 0.5, "weight_decay": 0.1})
    source = ast.unparse(tree)
    assert source.endswith(f"{FOUND} = trainer")
    assert "learning_rate=0.5, weight_decay=0.1)" in source
    assert "train()" not in source
    assert "save_model" not in source


def test_a_model_is_made_without_its_data() -> None:
    held: dict[str, object] = {}
    tree = model_only(ast.parse(CELL.replace("ARGS", "")), 1)
    tree.body = [each for each in tree.body if not isinstance(each, ast.ImportFrom)]  # transformers takes seconds
    exec(compile(tree, "cell", "exec"), held)
    assert held[MODEL] == ["width", "resized"]
    assert "data" not in held
