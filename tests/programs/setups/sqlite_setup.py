import torch
from torch import nn
import sqlite3
db = sqlite3.connect("runs.db")
db.execute("create table if not exists runs (name text)")
db.execute("insert into runs values ('one')")
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
    pass
print(f"loss {loss.item()!r}")
print(db.execute("select count(*) from runs").fetchone())
db.execute("insert into runs values ('end')")
db.commit()
print(db.execute("select count(*) from runs").fetchone())
db.close()
