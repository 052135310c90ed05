import sys

import torch

torch.manual_seed(7)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
target = torch.tensor([[0.5], [-1.0], [2.0], [0.0]])
step = 0
while True:
    x = torch.randn(12, 4)
    loss = (model(x) - x @ target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        print('step', step, 'loss', loss.item())
    if loss.item() < 1e-4:
        print('converged after', step)
        sys.exit(0)
