# %%
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

%matplotlib inline
words = "emma olivia ava isabella sophia charlotte mia amelia harper evelyn abigail emily ella".split()
chars = sorted(list(set("".join(words))))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
itos = {i: s for s, i in stoi.items()}
block_size = 3
X, Y = [], []
for w in words:
    context = [0] * block_size
    for ch in w + ".":
        ix = stoi[ch]
        X.append(context)
        Y.append(ix)
        context = context[1:] + [ix]
X, Y = torch.tensor(X), torch.tensor(Y)
# %%
g = torch.Generator().manual_seed(2147483647)
C = torch.randn((len(stoi), 2), generator=g)
W1 = torch.randn((6, 40), generator=g)
b1 = torch.randn(40, generator=g)
W2 = torch.randn((40, len(stoi)), generator=g) * 0.1
b2 = torch.randn(len(stoi), generator=g) * 0
parameters = [C, W1, b1, W2, b2]
for p in parameters:
    p.requires_grad = True
sum(p.nelement() for p in parameters)
# %% submit
lossi = []
stepi = []
for i in range(150):
    ix = torch.randint(0, X.shape[0], (16,), generator=g)
    emb = C[X[ix]]
    h = torch.tanh(emb.view(-1, 6) @ W1 + b1)
    logits = h @ W2 + b2
    loss = F.cross_entropy(logits, Y[ix])
    for p in parameters:
        p.grad = None
    loss.backward()
    lr = 0.1 if i < 100 else 0.01
    for p in parameters:
        p.data += -lr * p.grad
    stepi.append(i)
    lossi.append(loss.log10().item())
print(loss.item())
# %%
plt.plot(stepi, lossi)
# %%
emb = C[X]
h = torch.tanh(emb.view(-1, 6) @ W1 + b1)
loss = F.cross_entropy(h @ W2 + b2, Y)
loss
# %%
print([p is q for p, q in zip(parameters, [C, W1, b1, W2, b2])], b2.grad is not None, lr, ix.tolist())
# %%
for _ in range(5):
    out, context = [], [0] * block_size
    while len(out) < 12:
        h = torch.tanh(C[torch.tensor([context])].view(1, -1) @ W1 + b1)
        probs = F.softmax(h @ W2 + b2, dim=1)
        ix = torch.multinomial(probs, num_samples=1, generator=g).item()
        context = context[1:] + [ix]
        out.append(ix)
        if ix == 0:
            break
    print("".join(itos[i] for i in out))
