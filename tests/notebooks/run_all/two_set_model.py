# %%
import torch
from torch import nn

X = torch.arange(-2, 2, 0.1).unsqueeze(1)
y = X**3


def fit(model, epochs, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        loss = nn.functional.mse_loss(model(X), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


# %% submit
torch.manual_seed(0)
model = nn.Linear(1, 1)
name = "linear"
score = fit(model, 10, 0.1)
scores = {name: score}
# %% submit
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
name = "mlp"
score = fit(model, 20, 0.05)
scores[name] = score
# %%
model, name, score
# %%
scores
# %%
min(scores, key=scores.get), sum(p.numel() for p in model.parameters())
