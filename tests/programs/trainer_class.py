import os
from typing import Dict, List

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class MyTrainDataset(Dataset):
    def __init__(self, size):
        self.size = size
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.data[index]


class Callback:
    def on_epoch_end(self, trainer: "Trainer") -> None: ...


class Printer(Callback):
    def on_epoch_end(self, trainer):
        print(f"Epoch {trainer.epochs_run} | Loss {trainer.history['loss'][-1]:.5f} | Steps {trainer.global_step}")


class Snapshot(Callback):
    def __init__(self, every: int, path: str = "snapshot.pt"):
        self.every, self.path = every, path

    def on_epoch_end(self, trainer):
        if trainer.epochs_run % self.every == 0:
            torch.save({"MODEL_STATE": trainer.model.state_dict(), "EPOCHS_RUN": trainer.epochs_run}, self.path)


class Trainer:
    def __init__(self, model: nn.Module, train_data: DataLoader, optimizer: torch.optim.Optimizer, callbacks: List[Callback]):
        self.model = model
        self.train_data = train_data
        self.optimizer = optimizer
        self.callbacks = callbacks
        self.epochs_run = 0
        self.global_step = 0
        self.history: Dict[str, list] = {"loss": []}

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = nn.functional.mse_loss(output, targets)
        loss.backward()
        self.optimizer.step()
        self.global_step += 1
        return loss.item()

    def _run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
        total = 0.0
        for source, targets in self.train_data:
            total += self._run_batch(source, targets)
        self.history["loss"].append(total / len(self.train_data))

    def fit(self, max_epochs: int):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)
            self.epochs_run += 1
            for callback in self.callbacks:
                callback.on_epoch_end(self)
        return self


def load_train_objs():
    torch.manual_seed(int(os.environ.get("SEED", "3")))
    train_set = MyTrainDataset(512)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    return train_set, model, optimizer


def main(total_epochs=6, save_every=2, batch_size=32):
    dataset, model, optimizer = load_train_objs()
    train_data = DataLoader(dataset, batch_size=batch_size, pin_memory=False, shuffle=True)
    trainer = Trainer(model, train_data, optimizer, [Printer(), Snapshot(save_every)])
    trainer.fit(total_epochs)
    return trainer


if __name__ == "__main__":
    trainer = main()
