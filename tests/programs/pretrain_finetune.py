import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Subset, TensorDataset

# Two training loops in one script: a masked pretraining, then a head on the frozen and later thawed encoder.
torch.manual_seed(55)
rows = torch.randn(700, 4) @ torch.randn(4, 18)
target = (rows[:, 0] * rows[:, 1] > 0).long()
dataset = TensorDataset(rows, target)
encoder = nn.Sequential(nn.Linear(18, 32), nn.LayerNorm(32), nn.GELU())
decoder = nn.Linear(32, 18)

opt = optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
for epoch in range(2):
    for x, _ in DataLoader(dataset, 35, shuffle=True):
        mask = (torch.rand_like(x) < 0.3).float()
        loss = ((decoder(encoder(x * (1 - mask))) - x).pow(2) * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f'[pretrain] epoch={epoch} loss={loss.item():.4f}')
torch.save(encoder.state_dict(), 'encoder.pt')
del opt, decoder

head = nn.Linear(32, 2)
for p in encoder.parameters():
    p.requires_grad_(False)
opt = optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
order = torch.randperm(len(dataset)).tolist()
train_part, test_part = Subset(dataset, order[:500]), Subset(dataset, order[500:])
for epoch in range(4):
    if epoch == 2:
        for p in encoder.parameters():
            p.requires_grad_(True)
        opt.add_param_group({'params': encoder.parameters(), 'lr': 0.01})
    for x, t in DataLoader(train_part, 25, shuffle=True):
        loss = nn.functional.cross_entropy(head(encoder(x)), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        correct = sum((head(encoder(x)).argmax(1) == t).sum().item() for x, t in DataLoader(test_part, 100))
    print(f'[finetune] epoch={epoch} loss={loss.item():.4f} acc={correct / len(test_part):.3f}')
