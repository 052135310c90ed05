import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

np.random.seed(20)
torch.manual_seed(20)


def mixup_data(x, y, alpha=1.0):
    if alpha > 0:
        lam = np.random.beta(alpha, alpha)
    else:
        lam = 1
    index = torch.randperm(x.size()[0])
    return lam * x + (1 - lam) * x[index, :], y, y[index], lam


def mixup_criterion(criterion, pred, y_a, y_b, lam):
    return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)


def train(epoch):
    print('\nEpoch: %d' % epoch)
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets_a, targets_b, lam = mixup_data(inputs, targets)
        outputs = net(inputs)
        loss = mixup_criterion(criterion, outputs, targets_a, targets_b, lam)
        train_loss += loss.item()
        _, predicted = torch.max(outputs.data, 1)
        total += targets.size(0)
        correct += (lam * predicted.eq(targets_a.data).sum().float() + (1 - lam) * predicted.eq(targets_b.data).sum().float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('Loss: %.3f | Acc: %.3f%% (%d/%d)' % (train_loss / (batch_idx + 1), 100. * correct / total, correct, total))
    return train_loss / batch_idx, 100. * correct / total


def test(epoch):
    global best_acc
    net.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            _, predicted = torch.max(net(inputs).data, 1)
            total += targets.size(0)
            correct += predicted.eq(targets.data).cpu().sum()
    acc = 100. * correct / total
    if acc > best_acc:
        print('Saving.. acc: %.2f' % acc)
        torch.save({'net': net.state_dict(), 'acc': acc, 'epoch': epoch, 'rng_state': torch.get_rng_state()}, 'ckpt.t7')
        best_acc = acc
    return acc


def adjust_learning_rate(optimizer, epoch):
    lr = 0.1
    if epoch >= 2:
        lr /= 10
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


best_acc = 0
digits = load_digits()
X, Y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
trainloader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X[:1280], Y[:1280]), batch_size=64, shuffle=True)
testloader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X[1280:], Y[1280:]), batch_size=128)
net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for epoch in range(4):
    train_loss, train_acc = train(epoch)
    test_acc = test(epoch)
    adjust_learning_rate(optimizer, epoch)
