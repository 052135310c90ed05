# %%
import numpy as np
import torch
from torch import nn

n_epochs, n_runs = 4, 3
loss_matrix = np.full((n_runs, n_epochs), np.nan)
confusion = np.zeros((2, 2), dtype=int)
best_run = np.zeros(1, dtype=[("run", "i4"), ("loss", "f8")])
X = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
y = (X[:, 0] > 0).long()
# %% submit
final_weights = np.empty((n_runs, 2, 2))
for run in range(n_runs):
    torch.manual_seed(run)
    clf = nn.Linear(2, 2)
    opt = torch.optim.SGD(clf.parameters(), lr=1.0)
    for epoch in range(n_epochs):
        loss = nn.functional.cross_entropy(clf(X), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss_matrix[run, epoch] = loss.item()
    final_weights[run] = clf.weight.detach().numpy()
    np.add.at(confusion, (y.numpy(), clf(X).argmax(1).numpy()), 1)
best_run["run"], best_run["loss"] = loss_matrix[:, -1].argmin(), loss_matrix[:, -1].min()
# %%
loss_matrix
# %%
confusion, np.isnan(loss_matrix).any(), loss_matrix.mean(axis=0)
# %%
best_run, final_weights[best_run["run"][0]]
# %%
print(f"{loss_matrix.min():.10f}", final_weights.shape, loss.dtype, run)
