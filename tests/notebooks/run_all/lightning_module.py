# %%
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(0)
X = torch.randn(128, 6)
y = (X[:, 0] > X[:, 1]).long()
train_loader = DataLoader(TensorDataset(X[:96], y[:96]), batch_size=32)
val_loader = DataLoader(TensorDataset(X[96:], y[96:]), batch_size=32)


# %%
class LitClassifier(L.LightningModule):
    def __init__(self, hidden=16, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        self.epoch_losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        self.epoch_losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


lit = LitClassifier()
# %% submit
trainer = L.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, num_sanity_val_steps=0,
)
trainer.fit(lit, train_loader, val_loader)
# %%
lit.eval()
with torch.no_grad():
    predictions = lit(X[96:]).argmax(1)
print("accuracy", (predictions == y[96:]).float().mean().item(), type(lit) is LitClassifier)
# %%
lit.net[0].weight.sum().item(), dict(lit.hparams)
# %%
len(lit.epoch_losses), lit.epoch_losses[-1]
# %%
trainer.current_epoch, trainer.global_step, {name: each.item() for name, each in trainer.callback_metrics.items()}
# %%
trainer.lightning_module is lit, trainer.validate(lit, val_loader, verbose=False)
