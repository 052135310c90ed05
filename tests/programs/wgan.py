import numpy as np
import torch
import torch.nn as nn

np.random.seed(3)
torch.manual_seed(3)

n_epochs, batch_size, latent_dim = 4, 32, 6
n_critic, clip_value, lr = 5, 0.05, 5e-4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(latent_dim, 16, normalize=False), *block(16, 32), nn.Linear(32, 2))

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 1))

    def forward(self, x):
        return self.model(x)


generator = Generator()
discriminator = Discriminator()
centers = np.array([[1, 1], [-1, 1], [1, -1], [-1, -1]])
points = centers[np.random.randint(0, 4, 800)] + 0.1 * np.random.randn(800, 2)
dataloader = torch.utils.data.DataLoader(
    torch.tensor(points, dtype=torch.float32), batch_size=batch_size, shuffle=True)

optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=lr)
optimizer_D = torch.optim.RMSprop(discriminator.parameters(), lr=lr)

batches_done = 0
for epoch in range(n_epochs):
    for i, real in enumerate(dataloader):
        optimizer_D.zero_grad()
        z = torch.tensor(np.random.normal(0, 1, (real.shape[0], latent_dim)), dtype=torch.float32)
        fake = generator(z).detach()
        loss_D = -torch.mean(discriminator(real)) + torch.mean(discriminator(fake))
        loss_D.backward()
        optimizer_D.step()
        for p in discriminator.parameters():
            p.data.clamp_(-clip_value, clip_value)

        if i % n_critic == 0:
            optimizer_G.zero_grad()
            gen = generator(z)
            loss_G = -torch.mean(discriminator(gen))
            loss_G.backward()
            optimizer_G.step()
            print("[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                  % (epoch, n_epochs, batches_done % len(dataloader), len(dataloader), loss_D.item(), loss_G.item()))
        batches_done += 1
