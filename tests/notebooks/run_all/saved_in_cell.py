# %%
import json
import os

import torch
from torch import nn

torch.manual_seed(0)
X, y = torch.randn(64, 3), torch.randn(64, 1)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# %% submit
best_loss = float("inf")
for epoch in range(5):
    loss = nn.functional.mse_loss(model(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < best_loss:
        best_loss = loss.item()
        torch.save(model.state_dict(), "best_model.pt")
with open("log.json", "w") as f:
    json.dump({"best": best_loss, "epochs": epoch + 1}, f)
# %%
print(best_loss, epoch)
# %%
model.load_state_dict(torch.load("best_model.pt"))
print(nn.functional.mse_loss(model(X), y).item())
# %%
json.load(open("log.json")), os.path.exists("best_model.pt")
