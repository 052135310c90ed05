import torch
from torch import nn
with open("epochs.bin", "wb") as file:
    file.write(bytes(8))
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with open("epochs.bin", "r+b") as file:
        epochs = file.read(1)[0]
        file.seek(0)
        file.write(bytes([epochs + 1]))
print(f"loss {loss.item()!r}")
with open("epochs.bin", "rb") as file:
    print(file.read())
