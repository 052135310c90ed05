"""Train with batches whose loading takes far longer than a step, also on a busy machine."""

import time

import torch
from torch import nn

torch.manual_seed(0)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.randn(8)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(Slow(), batch_size=4):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
