# %%
import pandas as pd
import torch
import torchmetrics
from torch import nn

torch.manual_seed(0)
X, y = torch.randn(150, 4), torch.randint(0, 3, (150,))
model = nn.Linear(4, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
train_acc = torchmetrics.Accuracy(task="multiclass", num_classes=3)
f1 = torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro")
# %% submit
rows = []
for epoch in range(4):
    train_acc.reset()
    for xb, yb in zip(X.split(50), y.split(50)):
        logits = model(xb)
        loss = nn.functional.cross_entropy(logits, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train_acc.update(logits, yb)
        f1.update(logits, yb)
    rows.append(dict(epoch=epoch, loss=loss.item(), acc=train_acc.compute().item()))
metrics_df = pd.DataFrame(rows).set_index("epoch")
# %%
metrics_df
# %%
train_acc.compute(), f1.compute()
# %%
metrics_df.describe().round(6), metrics_df.acc.idxmax()
# %%
axes = metrics_df.plot(subplots=True, figsize=(5, 4))
# %%
f1.update(model(X), y)
f1.compute(), next(iter(metrics_df.itertuples()))
