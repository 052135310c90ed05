import torch
from torch import nn
import sqlite3
db = sqlite3.connect("runs.db")
db.execute("create table losses (epoch int)")
db.commit()
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        db.execute("insert into losses values (?)", (epoch,))
        db.commit()
print(f"loss {loss.item()!r}")
print(db.execute("select count(*) from losses").fetchone())
