import torch
from torch import nn
from pathlib import Path
for old in Path(".").glob("*.ckpt"):
    old.unlink()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    Path(f"{epoch}.ckpt").write_text(str(loss.item()))
print(f"loss {loss.item()!r}")
print(sorted(map(str, Path(".").glob("*.ckpt"))))
