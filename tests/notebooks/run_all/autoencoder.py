# %%
import matplotlib.pyplot as plt
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
images = torch.tensor(images[:500] / 16, dtype=torch.float32)
labels = labels[:500]


class VAE(nn.Module):
    def __init__(self, latent=2):
        super().__init__()
        self.encoder = nn.Linear(64, 32)
        self.mu, self.logvar = nn.Linear(32, latent), nn.Linear(32, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x):
        h = self.encoder(x).relu()
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar


# %% submit
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=5e-3)
losses = {"recon": [], "kl": [], "total": []}
embeddings = []
for epoch in range(5):
    for batch in torch.randperm(500).split(100):
        x = images[batch]
        recon, mu, logvar = vae(x)
        recon_loss = nn.functional.binary_cross_entropy(recon, x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        loss = recon_loss + 0.1 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, value in zip(losses, (recon_loss, kl, loss)):
        losses[name].append(value.item())
    with torch.no_grad():
        embeddings.append(vae(images)[1].numpy())
# %%
losses
# %%
plt.scatter(embeddings[-1][:, 0], embeddings[-1][:, 1], c=labels, s=4, cmap="tab10")
# %%
knn = KNeighborsClassifier(3).fit(embeddings[-1], labels)
print(f"{knn.score(embeddings[-1], labels):.3f}", len(embeddings), recon.shape, mu.shape)
# %%
torch.manual_seed(1)
vae.decoder(torch.randn(2, 2)).detach()[:, :5]
