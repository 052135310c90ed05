import torch
from torch import nn
import shelve
with shelve.open("index") as index:
    index["runs"] = index.get("runs", 0) + 1
    runs = index["runs"]
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
import glob, os
print(runs)
for each in glob.glob("index*"):
    os.remove(each)
