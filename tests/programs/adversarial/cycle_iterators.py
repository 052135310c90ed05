from itertools import chain, count, cycle, islice, repeat

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Iterators that outlive the loop's passes: cycle over a shuffled loader, iter() restarted by hand, map and zip objects.
torch.manual_seed(13)
labelled = DataLoader(TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,))), batch_size=8, shuffle=True)
unlabelled = DataLoader(torch.randn(100, 3), batch_size=10, shuffle=True)
forever = cycle(labelled)
colours = cycle('rgb')
rates = chain(repeat(0.05, 30), (0.05 / n for n in count(1)))
numbered = zip(count(), map(lambda t: t * 2, cycle([0.1, 0.2, 0.3])))
unlabelled_iter = iter(unlabelled)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(90):
    x, y = next(forever)
    try:
        u = next(unlabelled_iter)
    except StopIteration:
        unlabelled_iter = iter(unlabelled)
        u = next(unlabelled_iter)
    optimizer.param_groups[0]['lr'] = next(rates)
    n, factor = next(numbered)
    loss = nn.functional.cross_entropy(model(x), y) + factor * model(u).softmax(1).var(0).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    colour = next(colours)
    if step % 15 == 0:
        print('step', step, colour, n, 'loss', loss.item(), 'rest', len(list(islice(iter('abc'), step % 3))))
