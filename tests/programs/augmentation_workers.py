import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def set_seed(seed: int = 42) -> None:
    np.random.seed(seed)
    random.seed(seed)
    torch.manual_seed(seed)


class Patches(Dataset):
    def __init__(self, size, train=True):
        rng = np.random.default_rng(size)
        self.images = rng.normal(size=(size, 1, 8, 8)).astype(np.float32)
        self.labels = (self.images[:, 0, :4].mean((1, 2)) > self.images[:, 0, 4:].mean((1, 2))).astype(np.int64)
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        image = torch.from_numpy(self.images[idx])
        if self.train:
            if random.random() < 0.5:
                image = torch.flip(image, (2,))
            image = image + 0.1 * torch.randn(1, 8, 8)
        return {'image': image, 'label': self.labels[idx]}


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


def run():
    set_seed(0)
    g = torch.Generator()
    g.manual_seed(0)
    train_loader = DataLoader(Patches(320), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=seed_worker, generator=g)
    val_loader = DataLoader(Patches(100, train=False), batch_size=50)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    history = {'train_loss': [], 'val_acc': []}
    for epoch in range(3):
        model.train()
        losses = []
        for batch in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(batch['image']), batch['label'])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.inference_mode():
            hits = sum((model(b['image']).argmax(1) == b['label']).sum().item() for b in val_loader)
        history['train_loss'].append(np.mean(losses))
        history['val_acc'].append(hits / 100)
        print(f"Epoch {epoch + 1}/3 - train_loss: {history['train_loss'][-1]:.4f} - val_acc: {history['val_acc'][-1]:.3f}")
    return history


if __name__ == '__main__':
    run()
