import torch
from torch import nn
import sqlite3
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with sqlite3.connect("runs.db") as db:
        db.execute("create table if not exists losses (loss)")
        db.execute("insert into losses values (?)", (loss.item(),))
    db.close()
print(f"loss {loss.item()!r}")
print(sqlite3.connect("runs.db").execute("select count(*) from losses").fetchone())
