import json
import torch
from torch import nn
json.dump({"steps": 0}, open("counter.json", "w"))
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        counter = json.load(open("counter.json"))
        counter["steps"] += 1
        json.dump(counter, open("counter.json", "w"))
print(f"loss {loss.item()!r}")
