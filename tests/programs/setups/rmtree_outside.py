import torch
from torch import nn
import os, shutil
OUT = os.path.abspath("../beside/out")
shutil.rmtree(OUT, ignore_errors=True)
os.makedirs(OUT)
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
        torch.save(model.state_dict(), OUT + "/best.pt")
print(f"loss {loss.item()!r}")
print(torch.load(OUT + "/best.pt")["bias"].item(), os.listdir(OUT))
