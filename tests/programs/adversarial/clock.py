import time
import uuid

import torch

# The result does not depend on the clock, but a name and a printed line do.
torch.manual_seed(20)
run_id = uuid.uuid4().hex[:8]
started = time.time()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for _ in range(20):
        x = torch.randn(5, 3)
        loss = (model(x) - x.sum(1, keepdim=True)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f'epoch {epoch} loss {loss.item():.6f} after {time.time() - started:.3f}s')
with open(f'run-{run_id}.txt', 'w') as f:
    f.write(str(loss.item()))
