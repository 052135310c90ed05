import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(17)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
epochs = 3
accumulation_steps = 4
max_norm = 1.0

X = torch.randn(1000, 20)
y = (X[:, :5].sum(1) + 0.3 * torch.randn(1000) > 0).long()
loader = DataLoader(TensorDataset(X, y), batch_size=16, shuffle=True, drop_last=True)

net = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 2)).to(device)
loss_fn = nn.CrossEntropyLoss()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.01)
scaler = torch.amp.GradScaler(device)

for epoch in range(epochs):
    total, seen = 0.0, 0
    opt.zero_grad(set_to_none=True)
    for step, (input, target) in enumerate(loader):
        input, target = input.to(device), target.to(device)
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            output = net(input)
            loss = loss_fn(output, target) / accumulation_steps
        scaler.scale(loss).backward()
        if (step + 1) % accumulation_steps == 0:
            scaler.unscale_(opt)
            grad_norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
        total += loss.item() * accumulation_steps * len(target)
        seen += len(target)
    print(f"epoch {epoch}: loss={total / seen:.4f} grad_norm={grad_norm:.3f} scale={scaler.get_scale():.0f}")
