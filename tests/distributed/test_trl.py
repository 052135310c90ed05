"""An SFTTrainer of TRL with LoRA in a cell: its own bits on one slot, and after a kill those of an undisturbed one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from gang import STAND, Trial, as_json
from plain_trainer import plainly_trained

LACKING = [name for name in ("trl", "peft") if find_spec(name) is None]  # only the ranks import them
pytestmark = [pytest.mark.distributed, pytest.mark.skipif(bool(LACKING), reason=f"not installed: {LACKING}")]

# Texts of different lengths, dropout in the adapter, and logs (means over two steps) that a kill falls between.
CELL = f"""
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback, set_seed
from trl import SFTConfig, SFTTrainer
{STAND}
class Stand(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        stand()

set_seed(42)
words = ["<pad>", "<eos>"] + [chr(97 + each) for each in range(20)]
tokens = Tokenizer(models.WordLevel({{word: index for index, word in enumerate(words)}}, unk_token="<pad>"))
tokens.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>")
texts = [" ".join(words[2 + (place * each) % 20] for each in range(3 + place % 5)) for place in range(29)]
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    max_position_embeddings=32, pad_token_id=0, eos_token_id=1, bos_token_id=1,
))
args = SFTConfig(
    "out", per_device_train_batch_size=SIZE, gradient_accumulation_steps=2, num_train_epochs=2, learning_rate=1e-2,
    eval_strategy="epoch", logging_steps=2, report_to="none", max_length=16, bf16=False, seed=0,
)
trainer = SFTTrainer(
    model=model, args=args, train_dataset=Dataset.from_dict(dict(text=texts[:21])),
    eval_dataset=Dataset.from_dict(dict(text=texts[21:])), processing_class=tokenizer, callbacks=[Stand()],
    peft_config=LoraConfig(r=2, lora_dropout=0.2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
)
trainer.train()
"""


def test_a_kill_between_two_logs_changes_no_bit_and_no_mean(tmp_path):
    cell = CELL.replace("SIZE", "2")
    whole = Trial(tmp_path / "whole", cell, every="1steps")
    first = whole.run()
    assert first.codes == [0, 0], first.logs()
    trial = Trial(tmp_path / "killed", cell, every="1steps")
    killed = trial.killed_at(3, rank=1)
    assert 0 not in killed.codes, killed.logs()
    resumed = trial.run(trial.pinned())
    assert resumed.codes == [0, 0], resumed.logs()
    assert resumed.started.resumed_from is not None
    assert trial.weights() == whole.weights()
    assert trial.parts() == whole.parts()
    for kind in ("validation", "training"):
        told, again = first.reports(kind), resumed.reports(kind)
        assert again
        assert as_json(again) == as_json({step: values for step, values in told.items() if step in again})
    assert {"eval_mean_token_accuracy", "eval_num_tokens"} <= first.reports("validation")[max(again)].keys()
    assert "mean_token_accuracy" in first.reports("training")[4]


def test_one_slot_has_the_bits_of_trl_alone(tmp_path):
    cell = CELL.replace("SIZE", "4")
    trial = Trial(tmp_path / "job", cell, slots=1)
    attempt = trial.run()
    assert attempt.codes == [0], attempt.logs()
    assert plainly_trained(cell, "trainer.model", tmp_path) == trial.weights()
