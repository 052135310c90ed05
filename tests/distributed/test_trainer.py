"""Test a Hugging Face Trainer in a cell: bits on one slot, metrics on several, and resumption after every kill."""

from __future__ import annotations

import json
from textwrap import indent

import pytest
import torch
from form_contract import FormContract
from gang import STAND, Trial, as_json
from plain_trainer import plainly_trained

from jupyter_ext.capture import capture_file
from jupyter_ext.submit.local import train_locally
from jupyter_ext.submit.submit import check, read
from kernel_backend.spec.option_parser import OptionParser, add_options

pytestmark = pytest.mark.distributed

# Dropout, accumulated batches, a last batch that one rank has no sample of, and a callback with a state of its own.
CELL = f"""
import time
import torch
from transformers import BertConfig, BertForSequenceClassification, set_seed
from transformers import Trainer, TrainerCallback, TrainingArguments
{STAND}
class Stand(TrainerCallback):
    def __init__(self):
        self.seen = 0
        self.probes = [torch.nn.Linear(1, 1)]
        self.adam = torch.optim.Adam(self.probes[0].parameters())
    def on_step_end(self, args, state, control, **kwargs):
        self.seen += 1
        self.adam.zero_grad()
        self.probes[0](torch.ones(1)).square().sum().backward()
        self.adam.step()
        stand()

set_seed(42)
generator = torch.Generator().manual_seed(7)
ids = torch.randint(5, 60, (93, 12), generator=generator)
labels = (ids[:, :4].sum(1) > 130).long()
samples = [dict(input_ids=i, attention_mask=torch.ones_like(i), labels=l) for i, l in zip(ids, labels)]
config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
model = BertForSequenceClassification(config)

def compute_metrics(found):
    return dict(accuracy=float((found.predictions.argmax(1) == found.label_ids).mean()), seen=len(found.label_ids))

args = TrainingArguments(
    "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=2, learning_rate=5e-3,
    eval_strategy="epoch", report_to="none", logging_steps=3, seed=0,
)
trainer = Trainer(
    model=model, args=args, train_dataset=samples[:65], eval_dataset=samples[65:],
    compute_metrics=compute_metrics, callbacks=[Stand()],
)
trainer.train()
"""
LOGGED = 'import json\njson.dump(trainer.state.log_history, open("logs.json", "w"))\n'
BEHIND = 'raise AssertionError("what stands behind train() is not run")\n'


@pytest.mark.parametrize(
    ("slots", "backend"),
    [
        pytest.param(1, "torch", marks=pytest.mark.long),
        (2, "horovod"),
        pytest.param(2, "torch", marks=pytest.mark.long),
    ],
)
def test_a_kill_in_the_middle_of_an_epoch_changes_no_bit(tmp_path, slots, backend):
    whole = Trial(tmp_path / "whole", CELL + BEHIND, slots=slots, backend=backend)
    first = whole.run()
    assert first.codes == [0] * slots, first.logs()
    trial = Trial(tmp_path / "killed", CELL + BEHIND, slots=slots, backend=backend, every="1steps")
    attempt = trial.start(hold=3).reaches(2)
    attempt.wait(attempt.committed)
    killed = attempt.kill(slots - 1)
    assert 0 not in killed.codes, killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0] * slots, resumed.logs()
    assert resumed.started.resumed_from is not None
    assert trial.weights() == whole.weights()
    assert trial.parts() == whole.parts()
    assert {"beside", "beside.callbacks.1.adam"} <= trial.newest().state.keys()
    for rank in range(slots):
        own, wholes = (each.newest().state[f"random-{rank}"] for each in (trial, whole))
        assert as_json(own) == as_json(wholes)
        assert [way for way in own["kept"] if way.endswith(".seen")]
    last = max(first.reports("validation"))
    assert as_json(resumed.reports("validation")[last]) == as_json(first.reports("validation")[last])
    assert first.reports("validation")[last]["eval_seen"] == 28
    if slots == 1:
        assert plainly_trained(CELL + LOGGED, "model", tmp_path) == whole.weights()
        plain = [each["eval_loss"] for each in json.loads((tmp_path / "logs.json").read_text()) if "eval_loss" in each]
        assert [each["eval_loss"] for each in first.reports("validation").values()] == plain


def test_a_training_that_is_killed_once_it_has_ended_is_left_as_it_is(tmp_path):
    trial = Trial(tmp_path, CELL, slots=2)
    first = trial.run()
    assert first.codes == [0, 0], first.logs()
    before = trial.newest()
    again = trial.run(trial.pinned())
    assert again.codes == [0, 0], again.logs()
    after = trial.newest()
    assert {part.name: part.digest for part in after.parts} == {part.name: part.digest for part in before.parts}
    assert as_json(after.state) == as_json(before.state)


class TestContract(FormContract):
    """Test that a Trainer keeps what every form promises."""

    source = CELL
    diverging = CELL.replace("learning_rate=5e-3", "learning_rate=float('inf')")


# A causal model divides its loss by the tokens of all batches of a step, and samples have different numbers of them.
LANGUAGE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
set_seed(42)
config = GPT2Config(
    vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
)
model = GPT2LMHeadModel(config)
generator = torch.Generator().manual_seed(7)
ids = torch.randint(1, 32, (53, 12), generator=generator)
lengths = torch.randint(3, 12, (53,), generator=generator)
labels = ids.masked_fill(torch.arange(12) >= lengths[:, None], -100)
samples = [dict(input_ids=i, labels=l) for i, l in zip(ids, labels)]
def compute_metrics(found):
    asked = found.label_ids != -100
    return dict(right=float(((found.predictions.argmax(-1) == found.label_ids) & asked).sum()), tokens=int(asked.sum()))
class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        MORE
        return super().compute_loss(model, inputs, return_outputs, **kwargs)
args = TrainingArguments(
    "out", per_device_train_batch_size=SIZE, per_device_eval_batch_size=5, num_train_epochs=2, optim="sgd",
    learning_rate=RATE, gradient_accumulation_steps=2, eval_strategy="epoch", report_to="none", seed=0,
)
trainer = Mine(model, args, train_dataset=samples[:41], eval_dataset=samples[41:], compute_metrics=compute_metrics)
trainer.train()
"""
# A loss of the user's own that is a mean over the batch: nothing tells the Trainer so.
MEAN = """outputs = model(input_ids=inputs["input_ids"])
        loss = outputs.logits.float().pow(2).mean()
        return (loss, outputs) if return_outputs else loss"""


SMALLER_BATCH = (
    "each of 3 slots has batches of 3 samples, as with torchrun, so that steps are larger and fewer: "
    "per_device_train_batch_size=1 keeps the steps of one"
)


@pytest.mark.parametrize(("more", "rate"), [("pass", 0.5), ("pass", 0.0), (MEAN, 0.5)])
def test_three_slots_train_and_measure_as_one_with_the_same_global_batch(tmp_path, more, rate):
    found = {}
    for slots, size in ((1, 9), (3, 3)):
        cell = LANGUAGE.replace("MORE", more).replace("SIZE", str(size)).replace("RATE", str(rate))
        trial = Trial(tmp_path / f"{slots}", cell, slots=slots, backend="torch")
        attempt = trial.run()
        assert attempt.codes == [0] * slots, attempt.logs()
        told = [each for each in attempt.notes() if "as with torchrun" in each]
        assert told == [SMALLER_BATCH] * (slots > 1)
        found[slots] = trial.model(), attempt.reports("validation"), attempt.reports("training")
    (one, validated, trained), (three, validated_3, trained_3) = found[1], found[3]
    for name, tensor in one.items():
        torch.testing.assert_close(three[name], tensor, rtol=1e-4, atol=1e-6)
    assert validated.keys() == validated_3.keys()
    for step, values in validated.items():
        assert values["eval_tokens"] == validated_3[step]["eval_tokens"]
        assert values["eval_loss"] == pytest.approx(validated_3[step]["eval_loss"], rel=1e-4)
        if not rate:  # of the same weights, the same value
            assert values["eval_right"] == validated_3[step]["eval_right"]
    assert [each["loss"] for each in trained.values() if "loss" in each] == pytest.approx(
        [each["loss"] for each in trained_3.values() if "loss" in each], rel=1e-4
    )


# The same cell as a loop of the user's own: its lines in a function, and a line after the training.
ABOVE, _, BELOW = CELL.partition("set_seed(42)\n")
BODY = "set_seed(42)\n" + BELOW.replace("5e-3", "rate") + "run.report(behind=1.0)\n"
WITHIN = f"{ABOVE}def train(run, rate=5e-3):\n{indent(BODY, '    ')}"


def test_a_trainer_in_a_loop_of_the_users_own_trains_as_one_in_a_cell(tmp_path):
    cell = Trial(tmp_path / "cell", CELL)
    assert cell.run().codes == [0, 0]
    trial = Trial(tmp_path / "loop", WITHIN, every="1steps")
    killed = trial.killed_at(3, rank=1)
    assert 0 not in killed.codes, killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0, 0], resumed.logs()
    assert trial.weights() == cell.weights()
    assert resumed.reports("training")[resumed.step]["behind"] == 1.0
    assert max(resumed.reports("validation").values(), key=len)["eval_seen"] == 28


def test_a_trainer_trains_in_the_notebooks_process(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(CELL)
    parser = OptionParser()
    add_options(parser, "notebook")
    line = ["--local", "--steps", "3", "learning_rate=0.01"]
    asked = read(parser.parse_mixed(line))
    checked = check(capture_file(path), asked.given, asked.wanted, path, space=asked.space, config=asked.config)
    trained = train_locally(checked, asked)
    assert type(trained).__name__ == "BertForSequenceClassification"
    assert "validation at step 3 (epoch 0.3529): eval_loss" in capsys.readouterr().out
