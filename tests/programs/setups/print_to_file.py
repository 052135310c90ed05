import torch
from torch import nn
log = open("out.txt", "w", buffering=1)
print("begin", file=log)
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item(), file=log)
print(f"loss {loss.item()!r}")
log.close()
