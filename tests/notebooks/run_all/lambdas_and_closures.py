# %%
from functools import partial

import torch
from torch import nn

torch.manual_seed(0)
X, y = torch.randn(80, 3), torch.randn(80, 1)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# %% submit
schedule = lambda epoch: 0.1 / (1 + epoch)
losses = []


def make_logger(prefix):
    count = 0

    def log(value):
        nonlocal count
        count += 1
        return f"{prefix} {count}: {value:.6f}"

    return log


log = make_logger("loss")
lines = []
metrics = {"mae": lambda a, b: (a - b).abs().mean().item(), "mse": lambda a, b: (a - b).pow(2).mean().item()}
scaled = partial(torch.mul, 2)
for epoch in range(4):
    optimizer.param_groups[0]["lr"] = schedule(epoch)
    loss = nn.functional.mse_loss(model(X), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    lines.append(log(losses[-1]))
final = {name: metric(model(X), y) for name, metric in metrics.items()}
predict = lambda rows: model(torch.tensor(rows)).detach()
# %%
print("\n".join(lines))
# %%
log(0.25)
# %%
final, metrics["mae"](torch.ones(2), torch.zeros(2)), schedule(9)
# %%
predict([[1.0, 0.0, 0.0]]), scaled(torch.tensor(1.5))
# %%
model.weight.data.zero_()
predict([[1.0, 0.0, 0.0]]) - model.bias
