# %%
import gc

import torch
from torch import nn

torch.manual_seed(0)
inputs, targets = torch.randn(50, 3), torch.randn(50, 1)
model = nn.Linear(3, 1)
# %% submit
history = []
big = torch.zeros(1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    big += 1
del loss
# %%
last = history[-1]
del history
# %%
del big, optimizer
gc.collect() >= 0
# %%
print("history" in globals(), "big" in globals(), "optimizer" in globals(), "loss" in globals(), last)
# %%
try:
    print(loss)
except NameError as error:
    print(error)
# %%
history = [model.bias.item()]
history
