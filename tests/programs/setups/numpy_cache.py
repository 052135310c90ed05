import torch
from torch import nn
import os
import numpy as np
if not os.path.exists("data.npy"):
    np.save("data.npy", np.arange(100.))
data = np.load("data.npy", mmap_mode="r")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    pass
print(f"loss {loss.item()!r}")
print(float(data.sum()))
