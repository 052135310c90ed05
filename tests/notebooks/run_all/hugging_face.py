# %%
import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
set_seed(0)
tokens = torch.randint(1, 30, (64, 8))
dataset = Dataset.from_dict(
    {"input_ids": tokens.tolist(), "labels": (tokens[:, 0] > 15).long().tolist()}
).with_format("torch")
config = BertConfig(
    vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=16, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    output_dir="out", num_train_epochs=2, per_device_train_batch_size=16, learning_rate=5e-3, use_cpu=True,
    report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=0,
)
# %% submit
trainer = Trainer(model=model, args=args, train_dataset=dataset)
trainer.train()
# %%
model.eval()
with torch.no_grad():
    logits = model(input_ids=tokens[:6]).logits
print(logits)
# %%
model.config.num_labels, sum(p.numel() for p in model.parameters())
# %%
model.bert.embeddings.word_embeddings.weight.sum().item()
# %%
trainer.state.global_step, trainer.state.epoch, round(trainer.state.log_history[-1]["train_loss"], 6)
# %%
from contextlib import redirect_stdout

with redirect_stdout(None):  # how long it took
    found = trainer.evaluate(dataset)
trainer.model is model, sorted(found), found["eval_loss"], trainer.predict(dataset).predictions.argmax(1).tolist()
