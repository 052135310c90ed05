import sys
import types

import torch
from torch import nn

# State lives in a module that is made at run time, in sys.modules, in class attributes and in a function's attribute.
torch.manual_seed(10)
state = types.ModuleType('state')
state.step, state.best = 0, float('inf')
sys.modules['state'] = state


class Registry:
    seen = []
    counts = {}

    @classmethod
    def note(cls, name):
        cls.counts[name] = cls.counts.get(name, 0) + 1


def average(value):
    average.total = getattr(average, 'total', 0.0) + value
    average.n = getattr(average, 'n', 0) + 1
    return average.total / average.n


def update(loss):
    import state
    state.step += 1
    if loss < state.best:
        state.best = loss
        Registry.seen.append(state.step)
    Registry.note('better' if loss == state.best else 'worse')
    torch.nn.Linear.last_loss = loss


model = nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
for epoch in range(4):
    for _ in range(25):
        x = torch.randn(6, 4)
        loss = (model(x) - x[:, :2] * Registry.counts.get('better', 0) / 10).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update(loss.item())
        mean = average(loss.item())
    print('epoch', epoch, 'best', state.best, 'mean', mean, 'better', len(Registry.seen), 'step', state.step)
