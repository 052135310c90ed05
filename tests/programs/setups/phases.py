import torch
from torch import nn
import os
os.makedirs("out")
first = nn.Linear(4, 1)
opt = torch.optim.SGD(first.parameters(), lr=0.1)
for step in range(8):
    loss = first(torch.ones(2, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
torch.save(first.state_dict(), "out/first.pt")
again = torch.load("out/first.pt")
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
print(again["bias"].item())
