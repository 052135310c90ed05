import random

import numpy as np
import torch
from torch import nn

# Five random generators of the program's own, one of them shared by two names.
torch.manual_seed(12)
rng = np.random.default_rng(12)
legacy = np.random.RandomState(13)
children = [np.random.default_rng(s) for s in np.random.SeedSequence(14).spawn(2)]
dice = random.Random(15)
gen = torch.Generator().manual_seed(16)
alias = rng
x = torch.tensor(rng.standard_normal((200, 4)), dtype=torch.float32)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(4):
    order = alias.permutation(200)
    for i in range(0, 200, 10):
        rows = order[i:i + 10]
        noise = torch.tensor(children[epoch % 2].normal(size=(10, 1)), dtype=torch.float32)
        keep = torch.rand(10, 1, generator=gen) < 0.9
        loss = ((model(x[rows]) - x[rows].sum(1, keepdim=True) - 0.1 * noise) * keep).pow(2).mean()
        loss = loss * (1 + 0.1 * dice.random()) + 0.01 * legacy.rand()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('epoch', epoch, 'loss', loss.item(), 'next', rng.integers(1000), dice.randint(0, 99))
