"""Call a policy with single rows."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []

model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state = torch.zeros(1, 4)
for _ in range(16):
    choice = torch.distributions.Categorical(logits=model(state))
    action = choice.sample()
    loss = -choice.log_prob(action).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = state + torch.randn(1, 4) * 0.1 + action
    losses.append(loss.item())
