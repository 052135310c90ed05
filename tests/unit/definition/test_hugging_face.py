"""Test that a transformers Trainer in `train(run)` is refused before a start, and that similar names are not."""

from __future__ import annotations

import pytest

from kernel_backend.definition.parse import parse
from kernel_backend.errors import InvalidDefinition

LOOP = "def train(run, lr=1e-4):\n    {made}\n    trainer.train()\n"


@pytest.mark.parametrize(
    ("head", "made"),
    [
        ("from transformers import Trainer", "trainer = Trainer(model=net, args=args)"),
        ("from transformers import Seq2SeqTrainer as Mine", "trainer = Mine(model=net)"),
        ("from trl import SFTTrainer", "trainer = SFTTrainer(net)"),
        ("import transformers as tf", "trainer = tf.Trainer(model=net)"),
        ("from transformers import Trainer\nclass Weighted(Trainer): pass", "trainer = Weighted(model=net)"),
    ],
)
def test_a_trainer_in_a_loop_is_refused_with_its_line(head: str, made: str) -> None:
    source = f"{head}\n{LOOP.format(made=made)}"
    with pytest.raises(InvalidDefinition, match=r"^trainer\.train\(\) \(line \d\) is a Trainer's loop") as refused:
        parse(source)
    assert refused.value.details["line"] == len(source.splitlines())
    assert "run.loader(train_dataset" in refused.value.message


def test_a_trainer_that_is_called_at_once_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="line 3"):
        parse("from transformers import Trainer\ndef train(run):\n    Trainer(net).train()\n")


@pytest.mark.parametrize(
    "head",
    ["class Trainer:\n    def train(self): pass", "from mine import Trainer", "from transformers import AutoModel"],
)
def test_a_trainer_of_the_users_own_may_be_called(head: str) -> None:
    assert parse(f"{head}\n{LOOP.format(made='trainer = Trainer()')}").form == "loop"


def test_the_mode_of_a_model_of_transformers_is_no_trainer() -> None:
    source = "from transformers import AutoModel, Trainer\ndef train(run):\n    net = AutoModel()\n    net.train()\n"
    assert parse(source).form == "loop"


def test_a_trainer_above_the_cell_does_not_hide_what_the_cell_lacks() -> None:
    source = "from transformers import Trainer\ntrainer = Trainer(model=net)\ndef loss(output, target): ...\n"
    with pytest.raises(InvalidDefinition, match="no model and no train_data"):
        parse(source, roles_from=3)
