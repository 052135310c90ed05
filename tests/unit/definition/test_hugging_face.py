"""Test that a transformers Trainer in `train(run)` is refused before a start, and that similar names are not."""

from __future__ import annotations

import pytest

from kernel_backend.definition.options import check_options
from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.experiment import Config

ARGS = 'TrainingArguments("out", num_train_epochs=4, metric_for_best_model="f1")'
LOOP = "def train(run, lr=1e-4):\n    args = {args}\n    {made}\n    trainer.train()\n"
HEAD = "from transformers import Trainer, TrainingArguments"


def loop(head: str = HEAD, made: str = "trainer = Trainer(model=net, args=args)", args: str = ARGS) -> str:
    return f"{head}\n{LOOP.format(made=made, args=args)}"


@pytest.mark.parametrize(
    ("head", "made"),
    [
        (HEAD, "trainer = Trainer(model=net, args=args)"),
        ("from transformers import Seq2SeqTrainer as Mine", "trainer = Mine(net, args)"),
        ("from trl import SFTTrainer", "trainer = SFTTrainer(net, args=args)"),
        ("import transformers as tf", "trainer = tf.Trainer(model=net, args=args)"),
        (f"{HEAD}\nclass Weighted(Trainer): pass", "trainer = Weighted(model=net, args=args)"),
        (f"{HEAD}\ndef maker(a):\n    return Trainer(net, args)", "trainer = maker(1)"),
        (f"{HEAD}\ndef maker(a):\n    it = Trainer(net, args)\n    return it", "trainer = maker(1)"),
        (HEAD, "self.trainer = Trainer(net, args)\n    trainer = self.trainer = Trainer(net, args)"),
    ],
)
def test_a_trainer_in_a_loop_says_how_long_it_trains(head: str, made: str) -> None:
    found = parse(loop(head, made))
    assert (found.form, found.stepped_by, found.defaults) == ("loop", "trainer", {"lr": 1e-4})
    assert found.settings == {"epochs": 4, "seed": 42, "metric": {"name": "eval_f1", "mode": "max"}}
    assert found.summary.startswith("loop: train, by its ")


def test_the_argument_epochs_leaves_the_length_to_the_line() -> None:
    source = loop(args='TrainingArguments("out", num_train_epochs=epochs)').replace("run, lr", "run, epochs, lr")
    assert "epochs" not in parse(source).settings


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (loop() + "    trainer.train()\n", 6, "trains a Trainer again"),
        (loop().replace("    trainer.train()", "    for each in range(3):\n        trainer.train()"), 6, "fold=0,1,2"),
        (
            loop() + "    for x in run.loader(data): pass\n",
            6,
            r"^run.loader\(data\) .line 6. is for a loop of your own",
        ),
        (loop(args='TrainingArguments("out", fsdp="full_shard")'), 3, "fsdp='full_shard' of TrainingArguments"),
        (loop(args='TrainingArguments("out", num_train_epochs=n)'), 3, "num_train_epochs=epochs in train"),
        (loop(args='TrainingArguments("out", seed=n)'), 3, "leave it out, as --seed N sets it"),
        (loop(args="arguments"), 4, "arguments that the cell does not show"),
        (loop("from trl import GRPOTrainer", "trainer = GRPOTrainer(net, args=args)"), 4, "run the cell with %%dlrun"),
    ],
)
def test_what_cannot_be_exact_is_refused_with_its_line(source: str, line: int, message: str) -> None:
    with pytest.raises(InvalidDefinition, match=message) as refused:
        parse(source)
    assert refused.value.details["line"] == line


def test_options_of_the_steps_are_refused_as_for_a_trainer() -> None:
    with pytest.raises(InvalidDefinition, match="per_device_train_batch_size=N"):
        check_options(parse(loop()), Config(batch_size=64))


@pytest.mark.parametrize(
    "head",
    ["class Trainer:\n    def train(self): pass", "from mine import Trainer", "from transformers import AutoModel"],
)
def test_a_trainer_of_the_users_own_may_be_called(head: str) -> None:
    found = parse(loop(head, "trainer = Trainer()"))
    assert (found.form, found.stepped_by) == ("loop", "loop")


def test_the_mode_of_a_model_of_transformers_is_no_trainer() -> None:
    source = "from transformers import AutoModel, Trainer\ndef train(run):\n    net = AutoModel()\n    net.train()\n"
    assert parse(source).stepped_by == "loop"


def test_a_trainer_above_the_cell_does_not_hide_what_the_cell_lacks() -> None:
    source = "from transformers import Trainer\ntrainer = Trainer(model=net)\ndef loss(output, target): ...\n"
    with pytest.raises(InvalidDefinition, match="no model and no train_data"):
        parse(source, roles_from=3)
