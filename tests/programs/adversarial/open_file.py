import torch

# One file is written and another is read, line by line, over all steps.
torch.manual_seed(3)
with open('numbers.txt', 'w') as f:
    for i in range(200):
        f.write(f'{i % 7} {i % 5} {(i % 7) * 0.5 - (i % 5) * 0.25}\n')
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
log = open('train.log', 'w', buffering=1)
with open('numbers.txt') as source:
    step = 0
    for line in source:
        a, b, c = map(float, line.split())
        loss = (model(torch.tensor([[a, b]])) - c).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(step, f'{loss.item():.6f}', file=log)
        if step % 40 == 0:
            print('step', step, 'loss', loss.item())
log.close()
