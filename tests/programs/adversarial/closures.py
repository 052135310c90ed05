import torch
from torch import nn


# Names that only a lambda's closure holds, and hooks that write to one.
def make(seed):
    torch.manual_seed(seed)
    weights = torch.zeros(4)
    calls = 0

    def remember(module, inputs, output):
        nonlocal calls
        calls += 1
        weights.mul_(0.9).add_(output.detach().mean(0), alpha=0.1)

    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
    model.register_forward_hook(remember)
    return model, lambda loss: loss + 0.01 * weights.abs().sum() + 0.001 * calls, lambda: (calls, weights.tolist())


model, penalty, stats = make(4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99 ** step * (1 + stats()[0] % 3))
losses = []
for epoch in range(3):
    for batch in range(30):
        x = torch.randn(10, 3)
        loss = penalty(model(x).pow(2).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    print('epoch', epoch, 'loss', sum(losses[-30:]) / 30, 'calls', stats()[0])
