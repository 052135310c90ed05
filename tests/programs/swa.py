import torch
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(12)
x = torch.randn(640, 10)
y = x.pow(2).sum(1, keepdim=True) / 10
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True)
loss_fn = torch.nn.MSELoss()

model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
swa_model = AveragedModel(model)
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
swa_start = 3
swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)

for epoch in range(6):
    total = 0
    for input, target in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(input), target)
        loss.backward()
        optimizer.step()
        ema_model.update_parameters(model)
        total += loss.item()
    if epoch > swa_start:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(f'epoch {epoch + 1}  train_loss {total / len(loader):.5f}  lr {optimizer.param_groups[0]["lr"]:.5f}')

# Update bn statistics for the swa_model at the end
update_bn(loader, swa_model)
swa_model.eval()
with torch.no_grad():
    print('swa', loss_fn(swa_model(x), y).item(), 'ema', loss_fn(ema_model(x), y).item())
