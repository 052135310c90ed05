import queue
import threading

import torch
from torch import nn

torch.manual_seed(1)
batches = queue.Queue(maxsize=4)
g = torch.Generator().manual_seed(2)


def producer(n):
    for _ in range(n):
        x = torch.randn(16, 6, generator=g)
        batches.put((x, x.pow(2).sum(1, keepdim=True)))
    batches.put(None)


model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    worker = threading.Thread(target=producer, args=(20,), daemon=True)
    worker.start()
    total = 0.0
    while (item := batches.get()) is not None:
        x, y = item
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    worker.join()
    print(f'epoch {epoch} loss {total / 20:.5f}')
