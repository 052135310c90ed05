import torch
from torch import nn
import os
from tensorboardX import SummaryWriter
writer = SummaryWriter()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with open(writer.logdir + "/losses.txt", "a") as file:
        file.write(f"{epoch} {loss.item()!r}\n")
print(f"loss {loss.item()!r}")
run = writer.logdir
writer.close()
print(len(os.listdir("runs")), len(os.listdir(run)))
for each in os.listdir(run):
    if each.startswith("events"):
        os.remove(run + "/" + each)
os.rename(run, "runs/now")
