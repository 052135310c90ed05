import torch
from torch import nn
import json, os
state = json.load(open("state.json")) if os.path.exists("state.json") else {"runs": 0}
state["runs"] += 1
with open("state.tmp", "w") as file:
    json.dump(state, file)
os.replace("state.tmp", "state.json")
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
print(state)
