# %%
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(96, 4)
y = (x.sum(1) > 0).long()


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.outer(F.relu(self.inner(x)))


# %%
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
# %% submit
history = {"loss": [], "accuracy": []}
lossi, best_acc, best_state = [], 0.0, None
for epoch in range(4):
    for i in range(0, 64, 16):
        loss = F.cross_entropy(model(x[i : i + 16]), y[i : i + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lossi.append(loss.item())
    with torch.no_grad():
        accuracy = (model(x[64:]).argmax(1) == y[64:]).float().mean().item()
    history["loss"].append(loss.item())
    history["accuracy"].append(accuracy)
    if accuracy > best_acc:
        best_acc, best_state = accuracy, {name: each.clone() for name, each in model.state_dict().items()}
# %%
print(history, len(lossi), best_acc, epoch, i)
# %%
model.load_state_dict(best_state)
print(type(model) is Net, model.training, model(x).sum().item())
# %%
print(optimizer.param_groups[0]["params"][0] is model.inner.weight, optimizer.state_dict()["state"][0]["step"].item())
