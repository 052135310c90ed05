# %%
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
X = torch.randn(256, 8)
y = (X[:, 0] * X[:, 1] > 0).long()
X_train, X_test, y_train, y_test = X[:192], X[192:], y[:192], y[192:]


def build(hidden):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 2))


# %% submit
results = pd.DataFrame(columns=["hidden", "lr", "epoch", "loss", "acc"])
for hidden in [4, 16]:
    for lr in [1e-2, 1e-1]:
        net = build(hidden)
        opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
        for epoch in range(4):
            loss = F.cross_entropy(net(X_train), y_train)
            opt.zero_grad()
            loss.backward()
            opt.step()
            acc = (net(X_test).argmax(1) == y_test).float().mean().item()
            results.loc[len(results)] = [hidden, lr, epoch, loss.item(), acc]
# %%
results.head(10)
# %%
final = results[results.epoch == 3].sort_values("acc", ascending=False)
best = final.iloc[0]
print(f"best: hidden={best.hidden:.0f}, lr={best.lr}, acc={best.acc:.4f}")
# %%
results.pivot_table(index="epoch", columns=["hidden", "lr"], values="loss").plot(figsize=(5, 3))
# %%
results.groupby(["hidden", "lr"]).loss.agg(["min", "max"]), results.dtypes.to_dict()
