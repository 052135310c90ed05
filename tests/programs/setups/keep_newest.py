import torch
from torch import nn
import os
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        number = epoch * 6 + step
        open(f"ckpt-{number}.txt", "w").write(str(number))
        if number >= 3:
            os.remove(f"ckpt-{number - 3}.txt")
print(f"loss {loss.item()!r}")
