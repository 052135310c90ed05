import copy

import numpy as np
import torch
from torch import nn, optim

# Meta-learning over sine waves: a copy of the model is trained for each task, with an optimizer of its own.
seed, inner_lr, inner_steps, outer_lr, iterations = 0, 0.02, 3, 0.1, 40
rng = np.random.RandomState(seed)
torch.manual_seed(seed)
x_all = np.linspace(-5, 5, 50)[:, None]


def gen_task():
    phase = rng.uniform(low=0, high=2 * np.pi)
    ampl = rng.uniform(0.1, 5)
    return lambda x: np.sin(x + phase) * ampl


model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))


def totorch(x):
    return torch.tensor(x, dtype=torch.float32)


def train_on_batch(x, y, net, opt):
    opt.zero_grad()
    loss = (net(totorch(x)) - totorch(y)).pow(2).mean()
    loss.backward()
    opt.step()
    return loss.item()


for iteration in range(iterations):
    weights_before = copy.deepcopy(model.state_dict())
    f = gen_task()
    y_all = f(x_all)
    fast = copy.deepcopy(model)
    opt = optim.SGD(fast.parameters(), lr=inner_lr)
    inds = rng.permutation(len(x_all))
    for _ in range(inner_steps):
        for start in range(0, len(x_all), 10):
            mbinds = inds[start:start + 10]
            last = train_on_batch(x_all[mbinds], y_all[mbinds], fast, opt)
    weights_after = fast.state_dict()
    outerstepsize = outer_lr * (1 - iteration / iterations)
    model.load_state_dict({name: weights_before[name] + (weights_after[name] - weights_before[name]) * outerstepsize
                           for name in weights_before})
    if (iteration + 1) % 10 == 0:
        print(f"iteration {iteration + 1} loss {last:.3f}")
