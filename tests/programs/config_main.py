"""Research code: dataclass configuration, registries, seeds by function, metrics as a CSV of its own."""
from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
import random
from collections import defaultdict

import numpy as np
import torch
from torch import Tensor, nn


@dataclasses.dataclass
class Config:
    name: str = "baseline"
    lr: float = 3e-3
    width: int = 32
    depth: int = 2
    epochs: int = 4
    batch_size: int = 40
    seed: int = 99
    betas: tuple[float, float] = (0.9, 0.98)


class Meters(defaultdict):
    def __init__(self):
        super().__init__(lambda: [0.0, 0])

    def add(self, n: int, **values: float) -> None:
        for name, value in values.items():
            self[name][0] += value * n
            self[name][1] += n

    def means(self) -> dict[str, float]:
        return {name: total / count for name, (total, count) in self.items()}


class CSVLogger:
    def __init__(self, path: pathlib.Path, fields: list[str]):
        self.path, self.fields = path, fields
        with self.path.open("w", newline="") as f:
            csv.DictWriter(f, fields).writeheader()

    def write(self, **row: object) -> None:
        with self.path.open("a", newline="") as f:
            csv.DictWriter(f, self.fields).writerow(row)


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def build(config: Config) -> nn.Module:
    return nn.Sequential(nn.Linear(5, config.width), *(Residual(config.width) for _ in range(config.depth)),
                         nn.Linear(config.width, 1))


class Experiment:
    def __init__(self, config: Config, folder: pathlib.Path):
        self.config, self.folder = config, folder
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
        random.seed(config.seed)
        np.random.seed(config.seed)
        torch.manual_seed(config.seed)
        x = torch.rand(480, 5) * 2 - 1
        y = (x[:, :1] * x[:, 1:2] + x[:, 2:3].sin()).detach()
        self.train_data, self.valid_data = (x[:400], y[:400]), (x[400:], y[400:])
        self.net = build(config)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=config.lr, betas=config.betas)
        self.log = CSVLogger(self.folder / "metrics.csv", ["epoch", "train_mse", "valid_mse"])
        self.step = 0

    def epoch(self) -> Meters:
        meters = Meters()
        order = np.random.permutation(400)
        for rows in np.array_split(order, 400 // self.config.batch_size):
            x, y = (part[rows] for part in self.train_data)
            loss = (self.net(x) - y).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            meters.add(len(rows), mse=float(loss))
        return meters

    @torch.no_grad()
    def validate(self) -> float:
        x, y = self.valid_data
        return float((self.net(x) - y).square().mean())

    def run(self) -> float:
        best = float("inf")
        for epoch in range(self.config.epochs):
            means = self.epoch().means()
            valid = self.validate()
            self.log.write(epoch=epoch, train_mse=means["mse"], valid_mse=valid)
            print(f"[{self.config.name}] epoch={epoch} step={self.step} train_mse={means['mse']:.6f} valid_mse={valid:.6f}")
            if valid < best:
                best = valid
                torch.save(self.net.state_dict(), self.folder / "best.pt")
        return best


def main() -> float:
    return Experiment(Config(), pathlib.Path("runs/baseline")).run()


if __name__ == "__main__":
    best = main()
    print(f"{best=:.6f}")
