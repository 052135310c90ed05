import torch
from torch import nn
import os
sizes = {name: os.path.getsize(name) for name in sorted(os.listdir(".")) if name != "train.py"}
open("a.bin", "wb").write(bytes(10))
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    open("a.bin", "ab").write(bytes(10))
print(f"loss {loss.item()!r}")
print(sizes)
