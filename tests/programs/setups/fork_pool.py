import torch
from torch import nn
import multiprocessing


def square(x):
    with open(f"{x}.txt", "w") as file:
        file.write(str(x * x))
    return x * x


with multiprocessing.get_context("fork").Pool(2) as pool:
    values = pool.map(square, range(5))
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    pass
print(f"loss {loss.item()!r}")
print(values)
