import torch
import torch.nn as nn
from itertools import chain, zip_longest
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

torch.manual_seed(64)
g = torch.Generator().manual_seed(64)
a = TensorDataset(torch.randn(300, 6, generator=g), torch.randint(0, 3, (300,), generator=g))
b = TensorDataset(torch.randn(200, 6, generator=g), torch.randn(200, 1, generator=g))
loader_a = DataLoader(a, batch_size=20, shuffle=True, generator=g)
loader_b = DataLoader(ConcatDataset([b, b]), batch_size=20, shuffle=True)
trunk, head_a, head_b = nn.Sequential(nn.Linear(6, 24), nn.ReLU()), nn.Linear(24, 3), nn.Linear(24, 1)
log_vars = nn.Parameter(torch.zeros(2))
optim = torch.optim.Adam(chain(trunk.parameters(), head_a.parameters(), head_b.parameters(), [log_vars]), lr=1e-3)
sched = torch.optim.lr_scheduler.SequentialLR(optim, [
    torch.optim.lr_scheduler.LinearLR(optim, 0.1, total_iters=10),
    torch.optim.lr_scheduler.ExponentialLR(optim, 0.99)], milestones=[10])
for epoch in range(4):
    sums = torch.zeros(2)
    for n, (batch_a, batch_b) in enumerate(zip_longest(loader_a, loader_b)):
        loss = torch.zeros(())
        if batch_a is not None:
            x, y = batch_a
            la = nn.functional.cross_entropy(head_a(trunk(x)), y)
            loss = loss + torch.exp(-log_vars[0]) * la + log_vars[0]
            sums[0] += la.detach()
        if batch_b is not None:
            x, y = batch_b
            lb = nn.functional.mse_loss(head_b(trunk(x)), y)
            loss = loss + torch.exp(-log_vars[1]) * lb + log_vars[1]
            sums[1] += lb.detach()
        optim.zero_grad()
        loss.backward()
        optim.step()
        sched.step()
    print('epoch %d class %.4f regress %.4f weights %s' % (
        epoch, sums[0] / len(loader_a), sums[1] / len(loader_b), [round(v, 4) for v in log_vars.tolist()]))
