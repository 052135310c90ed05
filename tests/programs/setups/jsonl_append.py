import torch
from torch import nn
import json
def write(**row):
    with open("metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
write(begin=1)
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    write(epoch=epoch, loss=loss.item())
print(f"loss {loss.item()!r}")
print(len(open("metrics.jsonl").readlines()))
