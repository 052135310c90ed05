"""Define a cell that Hugging Face's Trainer alone and Daylight can train: a small BERT on noise, with a step hook."""

import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from contenders import step_hook, work


class Turn(TrainerCallback):
    """Call the hook before each step."""

    def on_step_begin(self, args, state, control, **kwargs):
        step_hook.step()


class Texts(torch.utils.data.Dataset):
    """Random words with random labels."""

    def __init__(self):
        self.words, self.labels = work.train_data("transformer").tensors

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": self.labels[index]}


set_seed(42)
config = BertConfig(
    vocab_size=work.WORDS,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    num_labels=work.CLASSES,
)
args = TrainingArguments(
    tempfile.mkdtemp(),
    per_device_train_batch_size=32,
    num_train_epochs=10**6,
    report_to="none",
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
    use_cpu=not torch.cuda.is_available(),
)
trainer = Trainer(model=BertForSequenceClassification(config), args=args, train_dataset=Texts(), callbacks=[Turn()])
trainer.train()
