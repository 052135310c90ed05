# %%
import torch
from torch import nn


class AverageMeter(object):
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.val:.5f} ({self.avg:.5f})"


torch.manual_seed(6)
data = [(torch.randn(20, 4), torch.randn(20, 1)) for _ in range(5)]
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
# %% submit
losses, norms = AverageMeter("loss"), AverageMeter("grad norm")
smooth_loss, beta = 0.0, 0.9
running = None
for epoch in range(4):
    losses.reset()
    for i, (xb, yb) in enumerate(data):
        loss = (model(xb) - yb).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        norms.update(model.weight.grad.norm().item())
        optimizer.step()
        losses.update(loss.item(), len(xb))
        smooth_loss = beta * smooth_loss + (1 - beta) * loss.item()
        running = loss.detach() if running is None else 0.9 * running + 0.1 * loss.detach()
    print(epoch, losses)
# %%
print(losses, norms, sep="\n")
# %%
print(f"{smooth_loss / (1 - beta ** (len(data) * 4)):.8f}", running, i)
# %%
losses.update(0.5, 10)
losses.avg, losses.count, isinstance(losses, AverageMeter)
