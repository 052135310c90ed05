import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset


def seed_everything(seed=2021):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True


class Config():
    train_batch_size = 32
    train_number_epochs = 3


class SiameseNetworkDataset(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.indices = {c: np.where(labels == c)[0] for c in range(10)}

    def __getitem__(self, index):
        img0 = self.images[index]
        # we need to make sure approx 50% of images are in the same class
        should_get_same_class = random.randint(0, 1)
        if should_get_same_class:
            other = random.choice(self.indices[self.labels[index]])
        else:
            other = np.random.choice(len(self.images))
            while self.labels[other] == self.labels[index]:
                other = np.random.choice(len(self.images))
        target = torch.from_numpy(np.array([int(self.labels[other] != self.labels[index])], dtype=np.float32))
        return torch.from_numpy(img0), torch.from_numpy(self.images[other]), target

    def __len__(self):
        return len(self.images)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True), nn.BatchNorm2d(4))
        self.fc1 = nn.Sequential(nn.Linear(4 * 64, 32), nn.ReLU(inplace=True), nn.Linear(32, 5))

    def forward_once(self, x):
        output = self.cnn1(x)
        return self.fc1(output.view(output.size()[0], -1))

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        d = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean((1 - label) * torch.pow(d, 2) + label * torch.pow(torch.clamp(self.margin - d, min=0.0), 2))


seed_everything()
digits = load_digits()
siamese_dataset = SiameseNetworkDataset(digits.images[:600, None].astype(np.float32) / 16, digits.target[:600])
train_dataloader = DataLoader(siamese_dataset, shuffle=True, num_workers=0, batch_size=Config.train_batch_size)
net = SiameseNetwork()
criterion = ContrastiveLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.0005)

counter = []
loss_history = []
iteration_number = 0
for epoch in range(0, Config.train_number_epochs):
    for i, data in enumerate(train_dataloader, 0):
        img0, img1, label = data
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss_contrastive = criterion(output1, output2, label)
        loss_contrastive.backward()
        optimizer.step()
        if i % 10 == 0:
            print("Epoch number {}\n Current loss {}\n".format(epoch, loss_contrastive.item()))
            iteration_number += 10
            counter.append(iteration_number)
            loss_history.append(loss_contrastive.item())
