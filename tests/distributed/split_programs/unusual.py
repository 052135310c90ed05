"""Train modules with parameters elsewhere, lazy ones, and some that modify inputs, weights or buffers."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []

scale = nn.Parameter(torch.ones(()))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return self.linear(x) * scale


scaled, lazy = Scaled(), nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(1))
words = nn.Sequential(nn.Embedding(10, 4, max_norm=0.5), nn.Flatten(), nn.Linear(12, 2))
inplace = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2))
norm = nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True), nn.Flatten(), nn.Linear(16, 2))
spectral = nn.Sequential(
    nn.utils.spectral_norm(nn.Linear(6, 8)), nn.utils.parametrizations.weight_norm(nn.Linear(8, 1))
)
frozen = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))
frozen[0].requires_grad_(False)
lazy(torch.zeros(1, 6))
everything = (scaled, lazy, words, inplace, norm, spectral, frozen)
optimizer = torch.optim.SGD([scale, *(each for module in everything for each in module.parameters())], lr=0.1)
for _ in range(4):
    x, z = torch.randn(8, 6), torch.randn(8, 6)
    loss = sum(module(x).pow(2).mean() for module in (scaled, lazy, spectral, frozen))
    loss = loss + words(torch.randint(0, 10, (8, 3))).pow(2).mean() + norm(torch.randn(8, 2, 4, 4)).pow(2).mean()
    loss = loss + inplace(z).pow(2).mean() + z.mean() + 1e-2 * sum(each.pow(2).sum() for each in scaled.parameters())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
