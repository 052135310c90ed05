# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
X = torch.randn(200, 6)
y = X[:, :2].prod(1, keepdim=True)
train_dl = DataLoader(TensorDataset(X[:160], y[:160]), batch_size=32, shuffle=True)
valid_dl = DataLoader(TensorDataset(X[160:], y[160:]), batch_size=40)


# %%
class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss_fn = nn.MSELoss()
        self.history = []
        self.best = None

    def fit(self, train_dl, valid_dl, epochs):
        for epoch in range(epochs):
            self.model.train()
            for xb, yb in train_dl:
                loss = self.loss_fn(self.model(xb), yb)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            valid_loss = self.evaluate(valid_dl)
            self.history.append({"epoch": epoch, "train": loss.item(), "valid": valid_loss})
            if self.best is None or valid_loss < self.best["valid"]:
                self.best = self.history[-1]
        return self

    @torch.no_grad()
    def evaluate(self, dl):
        self.model.eval()
        return sum(self.loss_fn(self.model(xb), yb).item() for xb, yb in dl) / len(dl)


# %%
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
trainer = Trainer(model)
# %% submit
trainer.fit(train_dl, valid_dl, epochs=5)
# %%
for row in trainer.history:
    print(f"{row['epoch']}: {row['train']:.6f} {row['valid']:.6f}")
# %%
trainer.model is model, trainer.best is min(trainer.history, key=lambda row: row["valid"]), type(trainer) is Trainer
# %%
print(trainer.evaluate(valid_dl), model[0].weight.norm().item(), trainer.optimizer.param_groups[0]["lr"])
