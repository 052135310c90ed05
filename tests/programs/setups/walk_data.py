import torch
from torch import nn
import os
found = sorted(os.path.join(a, c) for a, b, files in os.walk(".") for c in files)
os.makedirs("data/made")
open("data/made/m.txt", "w").write("m")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    open(f"data/made/{epoch}.txt", "w").write("m")
print(f"loss {loss.item()!r}")
print(found)
