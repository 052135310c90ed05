import gc
import random

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_wine
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler


class CFG:
    seed = 42
    n_fold = 3
    trn_fold = [0, 1, 2]
    epochs = 5
    batch_size = 16
    lr = 1e-2


def seed_torch(seed=42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class AverageMeter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.val, self.avg, self.sum, self.count = 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class WineDataset(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.tensor(self.x[i], dtype=torch.float), torch.tensor(self.y[i], dtype=torch.long)


def train_fn(train_loader, model, criterion, optimizer, epoch):
    losses = AverageMeter()
    model.train()
    for step, (inputs, labels) in enumerate(train_loader):
        y_preds = model(inputs)
        loss = criterion(y_preds, labels)
        losses.update(loss.item(), labels.size(0))
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1000)
        optimizer.step()
        optimizer.zero_grad()
        if step == (len(train_loader) - 1):
            print(f'Epoch: [{epoch + 1}][{step}/{len(train_loader)}] Loss: {losses.avg:.4f} Grad: {grad_norm:.4f}')
    return losses.avg


def valid_fn(valid_loader, model, criterion):
    losses = AverageMeter()
    model.eval()
    preds = []
    for inputs, labels in valid_loader:
        with torch.no_grad():
            y_preds = model(inputs)
        losses.update(criterion(y_preds, labels).item(), labels.size(0))
        preds.append(y_preds.softmax(1).numpy())
    return losses.avg, np.concatenate(preds)


X, y = load_wine(return_X_y=True)
oof = np.zeros((len(X), 3))
seed_torch(CFG.seed)
skf = StratifiedKFold(n_splits=CFG.n_fold, shuffle=True, random_state=CFG.seed)
scores = []

for fold, (trn_idx, val_idx) in enumerate(skf.split(X, y)):
    if fold not in CFG.trn_fold:
        continue
    print(f'========== fold: {fold} training ==========')
    scaler = StandardScaler().fit(X[trn_idx])
    train_dataset = WineDataset(scaler.transform(X[trn_idx]), y[trn_idx])
    valid_dataset = WineDataset(scaler.transform(X[val_idx]), y[val_idx])
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=CFG.batch_size, shuffle=True, drop_last=True)
    valid_loader = torch.utils.data.DataLoader(valid_dataset, batch_size=64, shuffle=False)
    model = nn.Sequential(nn.Linear(13, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr, weight_decay=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=CFG.epochs)
    criterion = nn.CrossEntropyLoss()
    best_score, best_loss = 0., np.inf
    for epoch in range(CFG.epochs):
        avg_loss = train_fn(train_loader, model, criterion, optimizer, epoch)
        avg_val_loss, preds = valid_fn(valid_loader, model, criterion)
        scheduler.step()
        score = accuracy_score(y[val_idx], preds.argmax(1))
        print(f'Epoch {epoch + 1} - avg_train_loss: {avg_loss:.4f}  avg_val_loss: {avg_val_loss:.4f}  Score: {score:.4f}')
        if avg_val_loss < best_loss:
            best_loss, best_score = avg_val_loss, score
            torch.save({'model': model.state_dict(), 'preds': preds}, f'fold{fold}_best.pth')
    check_point = torch.load(f'fold{fold}_best.pth', weights_only=False)
    oof[val_idx] = check_point['preds']
    scores.append(best_score)
    del model, optimizer
    gc.collect()

print(f'========== CV: {accuracy_score(y, oof.argmax(1)):.4f} folds: {np.mean(scores):.4f} ==========')
np.save('oof.npy', oof)
