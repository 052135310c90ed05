import torch
from torch import nn
import os
if os.path.exists("best"):
    os.remove("best")
open("first", "w").write("first")
os.link("first", "best")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    open(f"e{epoch}", "w").write(str(epoch))
    if os.path.exists("best"):
        os.remove("best")
    os.link(f"e{epoch}", "best")
print(f"loss {loss.item()!r}")
print(open("best").read())
