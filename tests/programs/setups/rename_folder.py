import torch
from torch import nn
import os
if os.path.isdir("out"):
    os.rename("out", "out.old")
os.mkdir("out")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    open(f"out/{epoch}", "w").write("x")
print(f"loss {loss.item()!r}")
print(sorted(os.listdir(".")) , sorted(os.listdir("out.old")))
