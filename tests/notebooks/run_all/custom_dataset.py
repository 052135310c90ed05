# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler

torch.manual_seed(0)


class SineDataset(Dataset):
    def __init__(self, n=120, noise=0.05):
        self.x = torch.linspace(0, 6.28, n).unsqueeze(1)
        self.y = self.x.sin() + noise * torch.randn(n, 1)
        self.touched = torch.zeros(n, dtype=torch.long)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.touched[i] += 1
        return self.x[i], self.y[i], i


def collate(rows):
    xs, ys, idx = zip(*rows)
    return torch.stack(xs), torch.stack(ys), torch.tensor(idx)


# %%
ds = SineDataset()
train, valid = Subset(ds, range(0, 100)), Subset(ds, range(100, 120))
sampler = WeightedRandomSampler(torch.linspace(1, 2, 100), 100)
loader = DataLoader(train, batch_size=20, sampler=sampler, collate_fn=collate)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.02)
sample_loss = torch.zeros(len(ds))
# %% submit
for epoch in range(5):
    for xb, yb, idx in loader:
        each = (model(xb) - yb).pow(2).squeeze(1)
        sample_loss[idx] = each.detach()
        opt.zero_grad()
        each.mean().backward()
        opt.step()
worst = sample_loss.topk(3)
# %%
print(worst.indices.tolist(), [round(v, 6) for v in worst.values.tolist()])
# %%
ds.touched.sum(), ds.touched[:10]
# %%
train.dataset is ds, loader.dataset is train
# %%
with torch.no_grad():
    rmse = sum((model(x) - y).item() ** 2 for x, y, _ in valid) ** 0.5
rmse, ds.touched[100:].tolist()
