# %%
import torch
from torch import nn

torch.manual_seed(8)
seqs = torch.randint(0, 10, (96, 6))
labels = (seqs.sum(1) > 27).long()
# %% submit
EMBED = 8


class Tagger(nn.Module):
    """GRU over symbols."""

    n_symbols = 10

    def __init__(self, dim=EMBED):
        super().__init__()
        self.embed = nn.Embedding(self.n_symbols, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        _, h = self.gru(self.embed(x))
        return self.head(h[-1])


class History(dict):
    def add(self, **values):
        for name, value in values.items():
            self.setdefault(name, []).append(value)


def accuracy(logits, target):
    return (logits.argmax(1) == target).float().mean().item()


tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.02)
history = History()
for epoch in range(4):
    for batch in torch.arange(96).split(24):
        logits = tagger(seqs[batch])
        loss = nn.functional.cross_entropy(logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    history.add(loss=loss.item(), acc=accuracy(tagger(seqs), labels))
# %%
type(tagger) is Tagger, type(history) is History, history
# %%
history.add(note="after")
print(sorted(history), tagger.embed.weight.shape, EMBED, Tagger.__doc__)
# %%
accuracy(tagger(seqs), labels), Tagger(4).embed.weight.shape
