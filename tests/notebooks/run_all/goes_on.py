# %%
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(128, 4)
Y = (X @ torch.randn(4, 2)).tanh()
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
# %% submit
for epoch in range(5):
    loss = nn.functional.mse_loss(model(X), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
# %%
print(f"after {len(losses)} epochs: {losses[-1]:.8f}")
# %% submit
for group in optimizer.param_groups:
    group["lr"] = 0.001
for epoch in range(5, 9):
    loss = nn.functional.mse_loss(model(X), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
# %%
print(epoch, len(losses), losses)
# %%
optimizer.state_dict()["param_groups"], optimizer.state[model[0].weight]["step"]
# %%
losses.append(nn.functional.mse_loss(model(X), Y).item())
len(losses), losses[-1], losses[-1] < losses[0]
