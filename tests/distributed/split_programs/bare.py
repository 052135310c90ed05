"""Train without any module."""

import torch

torch.manual_seed(0)
x = torch.randn(16, 4)
weights = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
for _ in range(16):
    optimizer.zero_grad()
    (x @ weights - x.sum(1)).pow(2).mean().backward()
    optimizer.step()
