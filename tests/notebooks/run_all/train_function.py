# %%
import matplotlib.pyplot as plt
import torch
from torch import nn, optim

torch.manual_seed(123)
x = torch.linspace(-3, 3, 128).unsqueeze(1)
y = torch.sin(x) + 0.1 * torch.randn_like(x)


# %%
def train_one_epoch(model, optimizer, loss_fn, batch_size=32):
    model.train()
    order = torch.randperm(len(x))
    total = 0.0
    for i in range(0, len(x), batch_size):
        idx = order[i : i + batch_size]
        optimizer.zero_grad()
        loss = loss_fn(model(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    return total / len(x)


def train(model, optimizer, epochs=10, loss_fn=nn.MSELoss()):
    history = {"epoch": [], "loss": [], "lr": []}
    for epoch in range(epochs):
        history["epoch"].append(epoch)
        history["loss"].append(train_one_epoch(model, optimizer, loss_fn))
        history["lr"].append(optimizer.param_groups[0]["lr"])
    return history


# %%
model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = optim.Adam(model.parameters(), lr=0.01)
# %% submit
history = train(model, optimizer, epochs=6)
# %%
print(f"final loss: {history['loss'][-1]:.8f}")
list(history)
# %%
plt.figure()
plt.semilogy(history["epoch"], history["loss"], "o-")
plt.grid(True)
# %%
model.eval()
with torch.no_grad():
    curve = model(x)
print(((curve - torch.sin(x)) ** 2).mean().item(), curve[::32].flatten().tolist())
