# %%
import torch
from torch import nn

torch.manual_seed(0)
X, y = torch.randn(40, 2), torch.randn(40, 1)
net = nn.Linear(2, 1)
history = []
log = history
config = {"lr": 0.1, "history": history}
models = {"net": net, "copy": None}
# %% submit
optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"])
for epoch in range(5):
    loss = (net(X) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    config["last"] = epoch
best = history
first, *rest = history
trained = net
# %%
print(best is history, trained is net, len(history), first == history[0], len(rest))
# %%
best.append("end")
history[-1], rest[-1] == history[-2]
# %%
config["last"], config["history"] is history
# %%
optimizer.param_groups[0]["params"][0] is net.weight, trained(X[:2])
