"""Train a model in evaluation mode."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(16):
    optimizer.zero_grad()
    model(torch.randn(8, 8)).pow(2).mean().backward()
    optimizer.step()
