"""Train with dropout and noise, without advancing the program's own random generators."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = (
            nn.Linear(16, 6),
            nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.3), nn.Linear(12, 16)),
        )

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code + torch.randn_like(code))


model = Noisy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(11, 16)
outputs = []
for _ in range(4):
    out = model(x)
    outputs.append(out.detach())
    loss = (out - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
drawn = torch.rand(3)
first = outputs[0]
