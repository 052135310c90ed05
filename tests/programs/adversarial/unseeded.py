import torch
from torch import nn

x = torch.randn(400, 8)
y = (x.sum(1, keepdim=True) > 0).float()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    for i in range(0, 400, 20):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x[i:i + 20]), y[i:i + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f'epoch {epoch} loss {loss.item():.5f}')
