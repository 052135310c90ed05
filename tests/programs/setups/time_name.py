import torch
from torch import nn
import os, time
run = time.strftime("runs/%H%M%S")
os.makedirs(run)
log = open(run + "/train.log", "w")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    log.write(f"{epoch} {loss.item()!r}\n")
print(f"loss {loss.item()!r}")
log.close()
print(len(os.listdir("runs")))
os.rename(run, "runs/now")
