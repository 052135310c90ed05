import torch
from torch import nn
import gzip
with gzip.GzipFile("head.gz", "wb", mtime=0) as file:
    file.write(b"head")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with open("log", "ab") as file:
        file.write(b"x")
print(f"loss {loss.item()!r}")
print(gzip.open("head.gz").read(), open("log").read())
