import torch
from torch import nn
import logging, logging.handlers
logger = logging.getLogger("r")
logger.setLevel("INFO")
handler = logging.handlers.RotatingFileHandler("r.log", maxBytes=60, backupCount=3)
logger.addHandler(handler)
handler.doRollover()
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
    logger.info("epoch %d", epoch)
print(f"loss {loss.item()!r}")
