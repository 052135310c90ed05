import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau


class EarlyStopping:
    """Stop the training if the validation loss does not improve after a given patience."""

    def __init__(self, patience=4, verbose=True, delta=0.0, path='checkpoint.pt'):
        self.patience = patience
        self.verbose = verbose
        self.counter = 0
        self.best_score = None
        self.early_stop = False
        self.val_loss_min = np.inf
        self.delta = delta
        self.path = path

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
        elif score < self.best_score + self.delta:
            self.counter += 1
            print(f'EarlyStopping counter: {self.counter} out of {self.patience}')
            if self.counter >= self.patience:
                self.early_stop = True
        else:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0

    def save_checkpoint(self, val_loss, model):
        if self.verbose:
            print(f'Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...')
        torch.save(model.state_dict(), self.path)
        self.val_loss_min = val_loss


np.random.seed(8)
torch.manual_seed(8)
x = np.random.uniform(-2, 2, (260, 1)).astype(np.float32)
y = (np.sin(3 * x) + 0.3 * np.random.randn(260, 1)).astype(np.float32)
train_set = torch.utils.data.TensorDataset(torch.from_numpy(x[:160]), torch.from_numpy(y[:160]))
valid_set = torch.utils.data.TensorDataset(torch.from_numpy(x[160:]), torch.from_numpy(y[160:]))
train_loader = torch.utils.data.DataLoader(train_set, batch_size=16, shuffle=True)
valid_loader = torch.utils.data.DataLoader(valid_set, batch_size=50)

model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
scheduler = ReduceLROnPlateau(optimizer, 'min', factor=0.5, patience=1)
criterion = nn.MSELoss()
early_stopping = EarlyStopping(patience=3)
avg_train_losses, avg_valid_losses = [], []

for epoch in range(1, 40 + 1):
    train_losses, valid_losses = [], []
    model.train()
    for batch, (data, target) in enumerate(train_loader, 1):
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        train_losses.append(loss.item())
    model.eval()
    for data, target in valid_loader:
        output = model(data)
        loss = criterion(output, target)
        valid_losses.append(loss.item())
    train_loss, valid_loss = np.average(train_losses), np.average(valid_losses)
    avg_train_losses.append(train_loss)
    avg_valid_losses.append(valid_loss)
    print(f'[{epoch:>3}] train_loss: {train_loss:.5f} valid_loss: {valid_loss:.5f} lr: {optimizer.param_groups[0]["lr"]:.5f}')
    scheduler.step(valid_loss)
    early_stopping(valid_loss, model)
    if early_stopping.early_stop:
        print("Early stopping")
        break

model.load_state_dict(torch.load('checkpoint.pt'))
print('best', min(avg_valid_losses))
