# %%
import numpy as np
import torch
from sklearn.datasets import make_circles
from torch import nn

X, y = make_circles(240, noise=0.1, factor=0.4, random_state=0)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32).unsqueeze(1)
architectures = {
    "tanh": lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)),
    "relu": lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)),
    "deep": lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)),
}
# %% submit
models, optimizers, final_losses = {}, {}, {}
for seed, (name, build) in enumerate(architectures.items()):
    torch.manual_seed(seed)
    models[name] = build()
    optimizers[name] = torch.optim.Adam(models[name].parameters(), lr=0.03)
    for epoch in range(15):
        loss = nn.functional.binary_cross_entropy_with_logits(models[name](X), y)
        optimizers[name].zero_grad()
        loss.backward()
        optimizers[name].step()
    final_losses[name] = loss.item()
ensemble = nn.ModuleList(models.values())
# %%
for name, value in sorted(final_losses.items(), key=lambda item: item[1]):
    print(f"{name:5} {value:.6f}")
# %%
with torch.no_grad():
    votes = torch.stack([model(X).sigmoid() for model in models.values()])
((votes.mean(0) > 0.5) == y.bool()).float().mean().item(), np.array(votes.std(0)).max()
# %%
ensemble[0] is models["tanh"], optimizers["deep"].param_groups[0]["params"][0] is models["deep"][0].weight
# %%
np.random.seed(0)
bootstrap = [votes.mean(0)[np.random.randint(0, 240, 240)].mean().item() for _ in range(3)]
bootstrap
