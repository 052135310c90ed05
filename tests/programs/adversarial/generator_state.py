import itertools

import torch
from torch import nn

# The data is a chain of generators with state: a coroutine that is sent to, islice, tee, a generator expression.
torch.manual_seed(9)


def curriculum():
    difficulty = 0.1
    while True:
        loss = yield difficulty
        if loss < 0.5:
            difficulty = min(1.0, difficulty * 1.2)


def source():
    n = 0
    while True:
        n += 1
        yield torch.randn(8, 3) + n % 3


level = curriculum()
difficulty = next(level)
first, second = itertools.tee(source())
scaled = (x * difficulty for x in first)
model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for step, x in enumerate(itertools.islice(scaled, 120)):
    y = next(second)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    difficulty = level.send(loss.item())
    if step % 20 == 0:
        print('step', step, 'difficulty', round(difficulty, 4), 'loss', loss.item())
