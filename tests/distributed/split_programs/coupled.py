"""Train models that compare rows, keep a state of rows, or pass features to a hook: only their parts are split."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), nn.Linear(12, 8)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x, y):
        logits = self.a(x) @ self.b(y).T * self.scale.exp()
        return nn.functional.cross_entropy(logits, torch.arange(len(x)))


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head, self.state, self.seen = nn.GRU(5, 12, batch_first=True), nn.Linear(12, 1), None, []

    def forward(self, x):
        out, state = self.rnn(x, self.state)
        self.state = state.detach()
        self.seen.append(len(x))
        return self.head(out[:, -1])


features = {}
body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
hooked = nn.Sequential(body, nn.Linear(16, 2))
body.register_forward_hook(lambda module, inputs, output: features.update(body=output))
pairs, remembering = Pairs(), Remembering()
optimizer = torch.optim.SGD([*pairs.parameters(), *remembering.parameters(), *hooked.parameters()], lr=0.05)
for _ in range(5):
    loss = pairs(torch.randn(10, 16), torch.randn(10, 12)) + remembering(torch.randn(10, 6, 5)).pow(2).mean()
    loss = loss + hooked(torch.randn(10, 6)).logsumexp(1).mean() + features["body"].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
seen = remembering.seen
