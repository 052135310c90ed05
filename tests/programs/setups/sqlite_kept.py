import torch
from torch import nn
import sqlite3
db = sqlite3.connect("old.db")
db.execute("create table runs (name text)")
db.commit()
db.close()
rows = sqlite3.connect("old.db").execute("select count(*) from runs").fetchone()
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
print(rows)
