import torch
from torch import nn
import os
child = os.fork()
if child == 0:
    os.execvp("sh", ["sh", "-c", "echo started > child.txt"])
os.waitpid(child, 0)
names = sorted(os.listdir("."))
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
print(names)
