import torch
from torch import nn
import os
log = open("train.log", "w")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch == 0:
        os.makedirs("run", exist_ok=True)
        os.chdir("run")
    with open(f"{epoch}.txt", "w") as file:
        file.write(f"{loss.item()!r}")
    log.write(f"{epoch}\n")
print(f"loss {loss.item()!r}")
print(sorted(os.listdir(".")))
log.close()
