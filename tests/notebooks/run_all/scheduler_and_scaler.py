# %%
import torch
from torch import nn

torch.manual_seed(0)
X, y = torch.randn(128, 5), torch.randint(0, 3, (128,))
net = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=32)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10)
# %% submit
lrs, scales = [], []
for epoch in range(8):
    for xb, yb in zip(X.split(32), y.split(32)):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(xb), yb)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        lrs.append(scheduler.get_last_lr()[0])
    scales.append(scaler.get_scale())
# %%
print(scales, f"norm {norm:.6f}, loss {loss:.6f}")
# %%
scaler.state_dict()
# %%
print(scheduler.last_epoch, scheduler.get_last_lr() == [lrs[-1]], optimizer.param_groups[0]["lr"], max(lrs))
# %%
scheduler.optimizer is optimizer, optimizer.param_groups[0]["params"][0] is net[0].weight
# %%
import pandas as pd

pd.Series(lrs, name="lr").plot()
