# %%
import torch
from torch import nn

text = "to be or not to be that is the question whether tis nobler in the mind to suffer " * 3
vocab = sorted(set(text))
encode = {c: i for i, c in enumerate(vocab)}
data = torch.tensor([encode[c] for c in text])
torch.manual_seed(1337)


class CharRNN(nn.Module):
    def __init__(self, n, width=24):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(n, width), nn.LSTM(width, width, batch_first=True), nn.Linear(width, n)

    def forward(self, x, state=None):
        h, state = self.rnn(self.embed(x), state)
        return self.out(h), state


def get_batch(size=8, length=16):
    at = torch.randint(len(data) - length - 1, (size,))
    return torch.stack([data[i : i + length] for i in at]), torch.stack([data[i + 1 : i + length + 1] for i in at])


@torch.no_grad()
def sample(model, start="t", n=30):
    x, state, out = torch.tensor([[encode[start]]]), None, start
    for _ in range(n):
        logits, state = model(x, state)
        x = torch.multinomial(logits[:, -1].softmax(-1), 1)
        out += vocab[x.item()]
    return out


# %%
model = CharRNN(len(vocab))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
# %% submit --values rng
max_iters, eval_interval = 40, 10
estimates = {}
for it in range(max_iters):
    xb, yb = get_batch()
    logits, hidden = model(xb)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), yb.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    if it % eval_interval == 0:
        estimates[it] = loss.item()
        print(f"step {it}: {loss.item():.4f}")
# %%
print(sample(model))
# %%
estimates, [each.shape for each in hidden]
# %%
torch.randint(0, 100, (4,)), get_batch(1, 5)
