"""Train a word model: rows are the second dimension, its state is passed from batch to batch, weights are tied."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm, self.head = nn.Embedding(20, 16), nn.LSTM(16, 16, 2), nn.Linear(16, 20)
        self.head.weight = self.embedding.weight

    def forward(self, x, state):
        out, state = self.lstm(self.embedding(x), state)
        return self.head(out), state


model = Words()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
data = torch.randint(0, 20, (60, 8))
state = (torch.zeros(2, 8, 16), torch.zeros(2, 8, 16))
for start in range(0, 59, 7):
    x, y = data[start : start + 7][: 59 - start], data[start + 1 : start + 8]
    out, state = model(x, tuple(each.detach() for each in state))
    loss = nn.functional.cross_entropy(out.reshape(-1, 20), y.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
