# %%
import numpy as np
import torch

rng = np.random.default_rng(0)
x = torch.from_numpy(rng.normal(size=(100, 1)).astype("float32"))
y = 3 * x + 0.5 + 0.1 * torch.from_numpy(rng.normal(size=(100, 1)).astype("float32"))
w = torch.zeros(1, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
learning_rate = 0.1
# %% submit
losses = np.empty(30)
for step in range(30):
    y_hat = x @ w + b
    loss = ((y_hat - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= learning_rate * w.grad
        b -= learning_rate * b.grad
        w.grad.zero_()
        b.grad.zero_()
    losses[step] = loss.item()
# %%
print(f"w = {w.item():.6f}, b = {b.item():.6f}, loss = {losses[-1]:.8f}")
# %%
w.requires_grad, w.is_leaf, w.grad, b.grad
# %%
((x @ w + b - y) ** 2).mean().backward()
w.grad, losses[:3]
# %%
rng.integers(0, 100, 3)
