import torch
from torch import nn

torch.manual_seed(5)
x = torch.randn(300, 7)
y = x[:, :2].prod(1, keepdim=True)
for width in (8, 16):
    model = nn.Sequential(nn.Linear(7, width), nn.ReLU(), nn.Linear(width, 1))
    for epoch in range(4):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01 / (epoch + 1))
        for rows in torch.randperm(300).split(25):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        print('width', width, 'epoch', epoch, 'loss', loss.item())
