# %%
import copy

import torch
from torch import nn

torch.manual_seed(9)
inputs = torch.randn(160, 4)
targets = inputs.pow(2).sum(1, keepdim=True)


class EMA:
    def __init__(self, model, decay=0.95):
        self.decay, self.steps = decay, 0
        self.module = copy.deepcopy(model).eval()
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.steps += 1
        for ours, theirs in zip(self.module.parameters(), model.parameters()):
            ours.lerp_(theirs, 1 - self.decay)


# %%
model = nn.Sequential(nn.Linear(4, 24), nn.SiLU(), nn.Linear(24, 1))
ema = EMA(model)
swa = torch.optim.swa_utils.AveragedModel(model)
opt = torch.optim.RMSprop(model.parameters(), lr=3e-3)
# %% submit
curve = {"raw": [], "ema": []}
for epoch in range(6):
    for i in torch.randperm(len(inputs)).split(40):
        loss = nn.functional.huber_loss(model(inputs[i]), targets[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
    swa.update_parameters(model)
    with torch.no_grad():
        for name, each in [("raw", model), ("ema", ema.module)]:
            curve[name].append(nn.functional.huber_loss(each(inputs), targets).item())
# %%
for name, values in curve.items():
    print(f"{name:>4}", " ".join(f"{v:.5f}" for v in values))
# %%
ema.steps, ema.decay, type(ema) is EMA, swa.n_averaged.item()
# %%
with torch.no_grad():
    print(ema.module(inputs[:3]), swa(inputs[:3]))
# %%
ema.update(model)
ema.steps, ema.module[0].bias.sum()
