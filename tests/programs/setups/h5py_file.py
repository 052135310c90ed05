import torch
from torch import nn
import h5py
file = h5py.File("losses.h5", "w")
losses = file.create_dataset("losses", (0,), maxshape=(None,))
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.resize((len(losses) + 1,))
        losses[-1] = loss.item()
print(f"loss {loss.item()!r}")
print(len(losses))
file.close()
