# %%
from dataclasses import asdict, dataclass, field, replace
from enum import Enum

import torch
from torch import nn


class Activation(Enum):
    RELU = "relu"
    TANH = "tanh"


@dataclass
class Config:
    lr: float = 0.05
    epochs: int = 5
    hidden: int = 12
    activation: Activation = Activation.TANH
    betas: tuple = (0.9, 0.99)


@dataclass
class TrainState:
    step: int = 0
    best: float = float("inf")
    losses: list = field(default_factory=list)
    config: Config = field(default_factory=Config)


# %%
cfg = Config(epochs=4)
torch.manual_seed(0)
X = torch.randn(90, 3)
y = X.abs().sum(1, keepdim=True)
acts = {Activation.RELU: nn.ReLU, Activation.TANH: nn.Tanh}
model = nn.Sequential(nn.Linear(3, cfg.hidden), acts[cfg.activation](), nn.Linear(cfg.hidden, 1))
state = TrainState(config=cfg)
# %% submit
opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, betas=cfg.betas)
for epoch in range(cfg.epochs):
    for xb, yb in zip(X.chunk(3), y.chunk(3)):
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        state.step += 1
        state.losses.append(round(loss.item(), 6))
        state.best = min(state.best, loss.item())
# %%
state
# %%
state.config == cfg, isinstance(state, TrainState), isinstance(state.config, Config)
# %%
asdict(replace(state.config, epochs=99)), state.config.activation is Activation.TANH
# %%
print(model(X[:2]).tolist(), sum(state.losses[-3:]) / 3)
