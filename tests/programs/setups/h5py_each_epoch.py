import torch
from torch import nn
import h5py
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with h5py.File("epochs.h5", "a") as file:
        file.create_dataset(f"{len(file)}", data=loss.item())
print(f"loss {loss.item()!r}")
with h5py.File("epochs.h5") as file:
    print(len(file))
