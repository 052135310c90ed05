import csv
import json

import torch
from torch import nn

torch.manual_seed(30)
HISTORY = {'epoch': [], 'loss': [], 'lr': []}
X = torch.randn(400, 6)
Y = X @ torch.randn(6, 2)
LR = 0.05
EPOCHS = 5
BATCH = 20
net = nn.Linear(6, 2)
optimiser = torch.optim.SGD(net.parameters(), lr=LR)

log = open('log.csv', 'w', newline='')
writer = csv.writer(log)
writer.writerow(['step', 'epoch', 'loss'])
step = 0
for epoch in range(EPOCHS):
    permutation = torch.randperm(X.size()[0])
    epoch_loss = 0.0
    for i in range(0, X.size()[0], BATCH):
        optimiser.zero_grad()
        indices = permutation[i:i + BATCH]
        batch_x, batch_y = X[indices], Y[indices]
        loss = ((net(batch_x) - batch_y) ** 2).mean()
        loss.backward()
        optimiser.step()
        step += 1
        epoch_loss += loss.item()
        writer.writerow([step, epoch, f'{loss.item():.6f}'])
        if step % 7 == 0:
            log.flush()
    HISTORY['epoch'].append(epoch)
    HISTORY['loss'].append(epoch_loss / (len(X) // BATCH))
    HISTORY['lr'].append(optimiser.param_groups[0]['lr'])
    with open('history.jsonl', 'a') as out:
        out.write(json.dumps({k: v[-1] for k, v in HISTORY.items()}) + '\n')
    print({'epoch': epoch, 'loss': round(HISTORY['loss'][-1], 6)})
log.close()
with open('history.json', 'w') as out:
    json.dump(HISTORY, out, indent=1)
