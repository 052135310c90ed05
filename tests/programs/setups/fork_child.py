import torch
from torch import nn
import os
child = os.fork()
if child == 0:
    open("child.txt", "w").write("child")
    os._exit(0)
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
