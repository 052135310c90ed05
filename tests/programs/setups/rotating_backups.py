import torch
from torch import nn
import logging.handlers
logger = logging.getLogger("rotating_backups")
logger.setLevel("INFO")
logger.addHandler(logging.handlers.RotatingFileHandler("r.log", maxBytes=40, backupCount=3))
logger.info("begin")
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        logger.info("epoch %d step %d", epoch, step)
print(f"loss {loss.item()!r}")
