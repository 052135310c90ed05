# %%
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import MDS
from torch import nn

torch.manual_seed(2)
X = torch.randn(60, 5)
y = (X[:, 0] + X[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
activations = {}


def keep(name):
    def hook(module, inputs, output):
        activations[name] = output.detach()

    return hook


handle = net[1].register_forward_hook(keep("relu"))
# %% submit
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
dead = []
for epoch in range(6):
    loss = nn.functional.cross_entropy(net(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dead.append(int((activations["relu"].max(0).values == 0).sum()))
features = activations["relu"].numpy()
# %%
dead, features.shape, float(features.mean())
# %%
LogisticRegression().fit(features, y).score(features, y)
# %%
activations["relu"].sum(1)[:4]
# %%
with torch.no_grad():
    net(X[:2])
activations["relu"].shape
