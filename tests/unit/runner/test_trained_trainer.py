"""Test that a new Trainer with the state of one that has trained is as if it had trained itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

from kernel_backend.runner.forms.lightning.progress import TrainedLightning, TrainerState
from kernel_backend.runner.forms.trainer.state import TrainedHuggingFace

X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, X.sum(1, keepdim=True))


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        loss = nn.functional.mse_loss(self.line(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("error", nn.functional.l1_loss(self.line(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        output = self.line(x)
        return {"loss": nn.functional.mse_loss(output, labels), "logits": output}


def made(folder: Path) -> LightningTrainer:
    return LightningTrainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip


def test_of_lightning(tmp_path: Path) -> None:
    loader = DataLoader(DATA, batch_size=4)
    trained = made(tmp_path)
    trained.fit(Line(), loader, loader)
    module = trained.lightning_module
    state = pickle.dumps(TrainerState(trained).state_dict())
    new = made(tmp_path)
    TrainedLightning(module, pickle.loads(state)).put_into(new)
    assert (new.current_epoch, new.global_step) == (trained.current_epoch, trained.global_step) == (3, 6)
    assert dict(new.callback_metrics) == dict(trained.callback_metrics)
    assert new.callback_metrics.keys() == {"loss", "error"}
    assert new.lightning_module is module
    assert module.trainer is new
    assert new.validate(module, loader, verbose=False) == trained.validate(module, loader, verbose=False)


def test_of_hugging_face(tmp_path: Path) -> None:
    rows = [{"x": x, "labels": y} for x, y in DATA]
    args = TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, label_names=["labels"],
    )  # fmt: skip
    trained = Trainer(Regression(), args, train_dataset=rows)  # type: ignore[arg-type]
    trained.train()
    new = Trainer(Regression(), args, train_dataset=rows)  # type: ignore[arg-type]
    TrainedHuggingFace(trained.model, pickle.loads(pickle.dumps(trained.state))).put_into(new)
    assert new.state.log_history == trained.state.log_history
    assert new.state.global_step == 4
    losses = [each.evaluate(rows)["eval_loss"] for each in (new, trained)]  # type: ignore[arg-type]
    assert losses[0] == losses[1]
