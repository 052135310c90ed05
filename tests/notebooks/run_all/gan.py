# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
real = torch.randn(512, 2) * 0.3 + torch.tensor([1.0, -1.0])
loader = torch.utils.data.DataLoader(real, batch_size=64, shuffle=True, drop_last=True)
latent_dim = 4
# %%
netG = nn.Sequential(nn.Linear(latent_dim, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)).to(device)
netD = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(device)
optG = torch.optim.Adam(netG.parameters(), lr=5e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(netD.parameters(), lr=5e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(8, latent_dim, device=device)
# %% submit
G_losses, D_losses, img_list = [], [], []
iters = 0
for epoch in range(4):
    for batch in loader:
        batch = batch.to(device)
        ones, zeros = torch.ones(len(batch), 1), torch.zeros(len(batch), 1)
        fake = netG(torch.randn(len(batch), latent_dim, device=device))
        optD.zero_grad()
        errD = bce(netD(batch), ones) + bce(netD(fake.detach()), zeros)
        errD.backward()
        optD.step()
        optG.zero_grad()
        errG = bce(netD(fake), ones)
        errG.backward()
        optG.step()
        G_losses.append(errG.item())
        D_losses.append(errD.item())
        iters += 1
    with torch.no_grad():
        img_list.append(netG(fixed_noise).cpu())
# %%
plt.figure(figsize=(5, 3))
plt.title("Generator and Discriminator Loss During Training")
plt.plot(G_losses, label="G")
plt.plot(D_losses, label="D")
plt.legend()
plt.show()
# %%
print(iters, len(img_list), img_list[-1].mean(0).tolist(), fake.shape, fake.requires_grad)
# %%
with torch.no_grad():
    samples = netG(fixed_noise)
torch.equal(samples, img_list[-1]), np.mean(D_losses[-8:])
# %%
[g["betas"] for g in optD.param_groups], optG.state[netG[0].weight]["step"]
