import time

import numpy as np
import torch

seed = int(time.time() * 1000) % 2**31
torch.manual_seed(seed)
rng = np.random.default_rng()
x = torch.tensor(rng.normal(size=(300, 5)), dtype=torch.float32)
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    rows = torch.randint(0, 300, (16,))
    loss = (model(x[rows]) - x[rows].prod(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print('step', step, 'loss', loss.item())
