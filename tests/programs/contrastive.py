import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset


class TwoViews(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def augment(self, x):
        shift = torch.randint(-1, 2, (2,))
        x = torch.roll(x, tuple(shift.tolist()), (0, 1))
        return x + 0.1 * torch.randn_like(x)

    def __getitem__(self, i):
        return self.augment(self.images[i]), self.augment(self.images[i])


def info_nce_loss(features, temperature=0.5):
    n = features.shape[0] // 2
    labels = torch.cat([torch.arange(n) for i in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    similarity = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity = similarity[~mask].view(similarity.shape[0], -1)
    positives = similarity[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity[~labels.bool()].view(similarity.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return logits, torch.zeros(logits.shape[0], dtype=torch.long)


class SimCLR(object):
    def __init__(self, model, optimizer, scheduler, epochs):
        self.model, self.optimizer, self.scheduler, self.epochs = model, optimizer, scheduler, epochs
        self.criterion = nn.CrossEntropyLoss()

    def train(self, train_loader):
        n_iter = 0
        for epoch_counter in range(self.epochs):
            for views in train_loader:
                images = torch.cat(views, dim=0)
                features = self.model(images)
                logits, labels = info_nce_loss(features)
                loss = self.criterion(logits, labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if n_iter % 5 == 0:
                    top1 = (logits.argmax(1) == labels).float().mean().item()
                    print('step', n_iter, 'loss', f'{loss.item():.4f}', 'acc/top1', f'{top1:.3f}')
                n_iter += 1
            if epoch_counter >= 1:
                self.scheduler.step()
            print(f"Epoch: {epoch_counter}\tLoss: {loss}\tlr: {self.scheduler.get_last_lr()[0]:.6f}")


torch.manual_seed(0)
images = torch.tensor(load_digits().images[:512], dtype=torch.float32) / 16
loader = DataLoader(TwoViews(images), batch_size=64, shuffle=True, drop_last=True)
encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(encoder.parameters(), 3e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader), eta_min=0)
simclr = SimCLR(encoder, optimizer, scheduler, 4)
simclr.train(loader)
