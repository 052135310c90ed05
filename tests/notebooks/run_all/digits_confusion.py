# %%
import matplotlib.pyplot as plt
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import classification_report, confusion_matrix
from torch.utils.data import DataLoader, TensorDataset, random_split

%matplotlib inline
torch.manual_seed(42)
digits = load_digits()
dataset = TensorDataset(
    torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
)
train_set, test_set = random_split(dataset, [1500, 297])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
test_loader = DataLoader(test_set, batch_size=64)


# %%
class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return self.fc(x.flatten(1))


net = ConvNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
history = {"loss": [], "val_acc": []}
# %% submit
for epoch in range(3):
    net.train()
    total = 0.0
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    net.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in test_loader:
            correct += (net(images).argmax(1) == labels).sum().item()
    history["loss"].append(total / len(train_loader))
    history["val_acc"].append(correct / len(test_set))
    print(f"epoch {epoch}: loss {history['loss'][-1]:.4f}, val_acc {history['val_acc'][-1]:.4f}")
# %%
y_true, y_pred = [], []
net.eval()
with torch.no_grad():
    for images, labels in test_loader:
        y_true += labels.tolist()
        y_pred += net(images).argmax(1).tolist()
cm = confusion_matrix(y_true, y_pred)
cm
# %%
print(classification_report(y_true, y_pred))
# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(history["loss"])
right.imshow(cm, cmap="Blues")
plt.show()
# %%
pd.DataFrame(history)
