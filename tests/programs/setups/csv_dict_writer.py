import torch
from torch import nn
import csv
file = open("metrics.csv", "w", newline="")
rows = csv.DictWriter(file, ["epoch", "loss"])
rows.writeheader()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    rows.writerow({"epoch": epoch, "loss": repr(loss.item())})
print(f"loss {loss.item()!r}")
file.close()
