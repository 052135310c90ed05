import random

import numpy as np
import torch
import torch.nn as nn

random.seed(7)
np.random.seed(7)
torch.manual_seed(7)

X = np.random.randn(600, 12).astype('float32')
Y = np.tanh(X @ np.random.randn(12, 1)).astype('float32')


def shuffled(n):
    order = list(range(n))
    random.shuffle(order)
    for i in order:
        yield i


def batches(X, Y, batch_size, noise=0.05):
    """Yield batches for ever, shuffled anew in each pass."""
    while True:
        picked = []
        for i in shuffled(len(X)):
            picked.append(i)
            if len(picked) == batch_size:
                x = X[picked] + noise * np.random.randn(batch_size, X.shape[1]).astype('float32')
                yield torch.from_numpy(x), torch.from_numpy(Y[picked])
                picked = []


def main(steps=160, batch_size=20):
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    data = batches(X, Y, batch_size)
    average = None
    for step in range(steps):
        x, y = next(data)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.95 * average + 0.05 * loss.item()
        if step % 20 == 0:
            print('step', step, 'loss', round(average, 5))
    held = torch.from_numpy(X[:100])
    print('final', nn.functional.mse_loss(model(held), torch.from_numpy(Y[:100])).item())
    return model


if __name__ == '__main__':
    net = main()
