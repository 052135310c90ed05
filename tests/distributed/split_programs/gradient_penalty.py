"""Train two modules with gradients of gradients, by inputs and by parameters."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []

generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
critic = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=1e-2)
of_critic = torch.optim.SGD(critic.parameters(), lr=1e-2)
for step in range(8):
    real, fake, share = torch.randn(10, 4) * 2 + 1, generator(torch.randn(10, 8)), torch.rand(10, 1)
    mixed = (share * real + (1 - share) * fake.detach()).requires_grad_()
    out = critic(mixed)
    (gradient,) = torch.autograd.grad(out, mixed, torch.ones_like(out), create_graph=True)
    penalty = ((gradient.norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    if step % 2 == 0:
        of_generator.zero_grad()
        (-critic(fake).mean()).backward()
        of_generator.step()
    losses.append(loss.item())
