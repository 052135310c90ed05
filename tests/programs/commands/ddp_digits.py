"""Digits by a small network with DistributedDataParallel: torchrun --nproc_per_node 2 ddp_digits.py"""
import argparse
import hashlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, train_data, test_data, args):
        self.rank = int(os.environ["RANK"])
        self.args = args
        self.sampler = DistributedSampler(train_data, seed=args.seed)
        self.train_loader = DataLoader(train_data, batch_size=args.batch_size, sampler=self.sampler)
        self.test_data = test_data
        self.model = DDP(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, args.epochs)
        self.snapshot_path = os.path.join(args.output_dir, "snapshot.pt")
        self.epochs_run = 0
        if os.path.exists(self.snapshot_path):
            self.load_snapshot()

    def load_snapshot(self):
        snapshot = torch.load(self.snapshot_path)
        self.model.module.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.scheduler.load_state_dict(snapshot["scheduler"])
        self.epochs_run = snapshot["epochs_run"]
        print(f"[rank {self.rank}] resuming after {self.epochs_run} epochs", flush=True)

    def save_snapshot(self, epoch):
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epochs_run": epoch + 1,
        }
        torch.save(snapshot, self.snapshot_path)

    def train_epoch(self, epoch):
        torch.manual_seed(self.args.seed * 1000 + epoch * dist.get_world_size() + self.rank)
        self.sampler.set_epoch(epoch)
        self.model.train()
        total = torch.zeros(2)
        for x, y in self.train_loader:
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += torch.tensor([loss.item() * len(y), len(y)])
        self.scheduler.step()
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        x, y = self.test_data
        return (self.model.module(x).argmax(1) == y).float().mean().item()

    def train(self):
        for epoch in range(self.epochs_run, self.args.epochs):
            if self.rank == 0:
                print(f"epoch {epoch}, lr {self.scheduler.get_last_lr()[0]:.3g}", flush=True)
            loss = self.train_epoch(epoch)
            if self.rank == 0:
                print(f"    loss: {loss:.8f} accuracy: {self.accuracy():.6f}", flush=True)
                self.save_snapshot(epoch)
            dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output_dir", default="runs")
    args = parser.parse_args()
    os.makedirs(args.output_dir, exist_ok=True)
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(1024, 10),
    )
    trainer = Trainer(model, TensorDataset(x[:1400], y[:1400]), (x[1400:], y[1400:]), args)
    trainer.train()
    if trainer.rank == 0:
        weights = b"".join(each.numpy().tobytes() for each in model.state_dict().values())
        print(f"final weights: {hashlib.sha256(weights).hexdigest()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
