"""Provide trainings of Keras and Hugging Face that use every kind of state, to be killed."""

from __future__ import annotations

# BatchNorm, dropout, a metric of two states, a schedule in epochs, and callbacks that count.
KERAS = """
import time
import keras
import numpy as np

class Counted(keras.callbacks.Callback):
    def __init__(self, pause):
        super().__init__()
        self.pause, self.seen = pause, 0
    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        time.sleep(self.pause)
    def on_epoch_end(self, epoch, logs=None):
        logs["seen"] = float(self.seen)

def data():
    random = np.random.default_rng(7)
    x = random.standard_normal((96, 16)).astype("float32")
    return x, (x[:, :4].sum(1) > 0).astype("int64")
def train_data(data): return data
def validation_data(data): return data[0][:24], data[1][:24]
def callbacks(pause=0.0):
    return [
        Counted(pause),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.95),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=2, factor=0.5),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=500),
    ]
def model(width=24, rate=0.2, lr=1e-2):
    inputs = keras.Input((16,))
    x = keras.layers.Dense(width, use_bias=False)(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.GaussianNoise(0.05)(keras.layers.Activation("relu")(x))
    x = keras.layers.Dropout(rate)(x)
    net = keras.Model(inputs, keras.layers.Dense(2)(x))
    net.compile(
        optimizer=keras.optimizers.AdamW(lr, clipnorm=1.0, use_ema=True, ema_momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return net
"""
# Dropout, accumulated batches, a cosine schedule, augmented samples, and a callback that counts.
TRAINER = """
import time
import torch
from transformers import BertConfig, BertForSequenceClassification, set_seed
from transformers import Trainer, TrainerCallback, TrainingArguments

class Counted(TrainerCallback):
    def __init__(self):
        self.seen = 0
    def on_step_end(self, args, state, control, **kwargs):
        self.seen += 1
        time.sleep(0.02)
    def on_log(self, args, state, control, logs=None, **kwargs):
        logs["seen"] = float(self.seen)

class Masked(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.ids = torch.randint(5, 60, (96, 12), generator=generator)
        self.labels = (self.ids[:, :4].sum(1) > 130).long()
    def __len__(self): return len(self.ids)
    def __getitem__(self, index):
        ids = torch.where(torch.rand(12) < 0.1, 3, self.ids[index])
        return dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=self.labels[index])

set_seed(42)
config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
model = BertForSequenceClassification(config)
samples = Masked()

def compute_metrics(found):
    return dict(accuracy=float((found.predictions.argmax(1) == found.label_ids).mean()))

args = TrainingArguments(
    "out", per_device_train_batch_size=6, gradient_accumulation_steps=2, num_train_epochs=24, learning_rate=5e-3,
    lr_scheduler_type="cosine", warmup_steps=5, eval_strategy="epoch", report_to="none", logging_steps=1, seed=0,
    dataloader_num_workers=1,
)
trainer = Trainer(
    model=model, args=args, train_dataset=samples, eval_dataset=torch.utils.data.Subset(samples, range(24)),
    compute_metrics=compute_metrics, callbacks=[Counted()],
)
trainer.train()
"""
