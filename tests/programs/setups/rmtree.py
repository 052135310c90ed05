import torch
from torch import nn
import os, shutil
shutil.rmtree("out", ignore_errors=True)
os.makedirs("out")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch == 1:
        torch.save(model.state_dict(), "out/best.pt")
print(f"loss {loss.item()!r}")
print(torch.load("out/best.pt")["bias"].item())
