import torch
from torch import nn
import logging.config, os
os.makedirs("logs")
handlers = {"file": {"class": "logging.FileHandler", "filename": "logs/train.log", "mode": "w"}}
logging.config.dictConfig({"version": 1, "handlers": handlers, "root": {"level": "INFO", "handlers": ["file"]}})
logger = logging.getLogger(__name__)
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
