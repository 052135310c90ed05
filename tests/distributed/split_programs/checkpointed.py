"""Train with activation checkpointing, in both of torch's ways."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x):
        return x + torch.tanh(self.norm(self.linear(x)))


class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.start, self.blocks = nn.Linear(6, 16), nn.ModuleList(Block(16) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.start(x)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
        return x


first, second = Net(False), Net(True)
for model in (first, second):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(torch.randn(10, 6)), torch.randint(0, 16, (10,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
