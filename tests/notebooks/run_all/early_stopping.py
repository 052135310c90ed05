# %%
import copy

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

np.random.seed(1)
torch.manual_seed(1)
data = load_breast_cancer()
X_train, X_val, y_train, y_val = train_test_split(data.data, data.target, test_size=0.3, random_state=1)
scaler = StandardScaler().fit(X_train)
X_train, X_val = scaler.transform(X_train).astype("float32"), scaler.transform(X_val).astype("float32")
train_ds = TensorDataset(torch.from_numpy(X_train), torch.from_numpy(y_train).float())
train_loader = DataLoader(train_ds, batch_size=64, shuffle=True)
# %%
model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)


def validate(model):
    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(X_val)).squeeze(1)
        return criterion(logits, torch.from_numpy(y_val).float()).item()


# %% submit
best_loss, patience, waited = float("inf"), 2, 0
best_state = None
train_losses, val_losses = [], []
for epoch in range(30):
    model.train()
    running_loss = 0.0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(xb).squeeze(1), yb)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * len(xb)
    train_losses.append(running_loss / len(train_ds))
    val_losses.append(validate(model))
    if val_losses[-1] < best_loss:
        best_loss, waited = val_losses[-1], 0
        best_state = copy.deepcopy(model.state_dict())
    else:
        waited += 1
        if waited >= patience:
            print(f"early stopping at epoch {epoch}")
            break
# %%
print(f"stopped after {epoch + 1} epochs, best {best_loss:.6f} at {int(np.argmin(val_losses))}, waited {waited}")
# %%
model.load_state_dict(best_state)
validate(model) == best_loss
# %%
with torch.no_grad():
    predicted = (torch.sigmoid(model(torch.from_numpy(X_val))).squeeze(1) > 0.5).numpy()
print(f"accuracy {(predicted == y_val).mean():.4f}")
train_losses
