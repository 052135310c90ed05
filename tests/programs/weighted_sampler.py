import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SEED = 2024
np.random.seed(SEED)
torch.manual_seed(SEED)
X, y = make_classification(2000, 16, n_informative=8, weights=[0.93], random_state=SEED)
X_train, X_valid, y_train, y_valid = train_test_split(X.astype('float32'), y, stratify=y, random_state=SEED)

class_sample_count = np.array([len(np.where(y_train == t)[0]) for t in np.unique(y_train)])
weight = 1. / class_sample_count
samples_weight = torch.from_numpy(np.array([weight[t] for t in y_train]))
sampler = WeightedRandomSampler(samples_weight.type('torch.DoubleTensor'), len(samples_weight))
train_loader = DataLoader(TensorDataset(torch.from_numpy(X_train), torch.from_numpy(y_train)), batch_size=50, sampler=sampler)
valid_loader = DataLoader(TensorDataset(torch.from_numpy(X_valid), torch.from_numpy(y_valid)), batch_size=250)

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(1.5))
best_auc = 0.
for epoch in range(3):
    model.train()
    epoch_loss = 0.
    for xb, yb in train_loader:
        optimizer.zero_grad()
        out = model(xb).squeeze(1)
        loss = criterion(out, yb.float())
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item() * len(xb)
    model.eval()
    preds, trues = [], []
    with torch.no_grad():
        for xb, yb in valid_loader:
            preds.append(torch.sigmoid(model(xb).squeeze(1)).numpy())
            trues.append(yb.numpy())
    preds, trues = np.concatenate(preds), np.concatenate(trues)
    auc = roc_auc_score(trues, preds)
    f1 = f1_score(trues, preds > 0.5)
    if auc > best_auc:
        best_auc = auc
        np.save('best_preds.npy', preds)
    print(f'epoch {epoch} loss {epoch_loss / len(y_train):.4f} auc {auc:.4f} f1 {f1:.4f}')
print('CV', best_auc)
