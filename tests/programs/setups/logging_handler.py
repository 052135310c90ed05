import torch
from torch import nn
import logging
logger = logging.getLogger("t")
logger.setLevel("INFO")
logger.addHandler(logging.FileHandler("t.log", "w"))
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
    logger.info("%d %r", epoch, loss.item())
print(f"loss {loss.item()!r}")
