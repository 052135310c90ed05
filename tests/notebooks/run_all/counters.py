# %%
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import torch
from sklearn.datasets import load_wine
from torch import nn

torch.manual_seed(0)
wine = load_wine()
X = torch.tensor((wine.data - wine.data.mean(0)) / wine.data.std(0), dtype=torch.float32)
y = torch.tensor(wine.target)
model = nn.Linear(13, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# %% submit
logs = defaultdict(list)
mistakes = Counter()
by_class = defaultdict(lambda: defaultdict(int))
seen = set()
for epoch in range(3):
    for idx in torch.randperm(len(X)).split(32):
        out = model(X[idx])
        loss = nn.functional.cross_entropy(out, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logs["loss"].append(loss.item())
        wrong = out.argmax(1) != y[idx]
        mistakes.update(wine.target_names[y[idx][wrong]].tolist())
        seen.update(idx[wrong].tolist())
        for t, p in zip(y[idx].tolist(), out.argmax(1).tolist()):
            by_class[t][p] += 1
    logs["epoch_loss"].append(np.mean(logs["loss"][-6:]))
summary = OrderedDict(first=logs["loss"][0], last=logs["loss"][-1])
# %%
print({name: len(values) for name, values in logs.items()}, logs["nothing yet"])
# %%
mistakes.most_common(), mistakes["no such wine"]
# %%
{t: dict(row) for t, row in sorted(by_class.items())}, by_class[9][9]
# %%
summary, sorted(seen)[:10], logs["epoch_loss"]
