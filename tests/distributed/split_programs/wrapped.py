"""Train with a wrapper around a model, and with an optimizer that calls the model repeatedly."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


parallel, bowl = nn.DataParallel(Net()), Net().double()
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
lbfgs = torch.optim.LBFGS(bowl.parameters(), max_iter=4)
for _ in range(4):
    x = torch.randn(12, 16)
    loss = parallel(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

    def closure(x=x):
        lbfgs.zero_grad()
        value = (bowl(x.double()) - x.double().sum(1, keepdim=True)).pow(2).mean()
        value.backward()
        return value

    losses.append(lbfgs.step(closure).item())
