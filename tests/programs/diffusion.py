import copy

import torch
from sklearn.datasets import make_swiss_roll
from torch import nn
from tqdm import tqdm

seed, timesteps, epochs, batch, lr = 5, 40, 5, 64, 1e-3


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.time = nn.Embedding(timesteps, width)
        self.inp = nn.Linear(2, width)
        self.net = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(self.inp(x) + self.time(t))


class EMA:
    def __init__(self, model, beta=0.99):
        self.beta = beta
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)

    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p.detach(), 1 - self.beta)


class Diffusion:
    def __init__(self):
        self.beta = torch.linspace(1e-3, 0.2, timesteps)
        self.alpha = 1 - self.beta
        self.alpha_hat = torch.cumprod(self.alpha, 0)

    def noise(self, x, t):
        a = self.alpha_hat[t].sqrt()[:, None]
        b = (1 - self.alpha_hat[t]).sqrt()[:, None]
        eps = torch.randn_like(x)
        return a * x + b * eps, eps

    @torch.no_grad()
    def sample(self, model, n):
        x = torch.randn(n, 2)
        for i in reversed(range(timesteps)):
            t = torch.full((n,), i, dtype=torch.long)
            z = torch.randn_like(x) if i > 0 else torch.zeros_like(x)
            eps = model(x, t)
            x = (x - self.beta[i] / (1 - self.alpha_hat[i]).sqrt() * eps) / self.alpha[i].sqrt() + self.beta[i].sqrt() * z
        return x


if __name__ == "__main__":
    torch.manual_seed(seed)
    points, _ = make_swiss_roll(1500, noise=0.5, random_state=seed)
    data = torch.tensor(points[:, [0, 2]] / 10, dtype=torch.float32)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=batch, shuffle=True)
    model, diffusion = Denoiser(), Diffusion()
    ema = EMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    mse = nn.MSELoss()
    for epoch in range(epochs):
        pbar = tqdm(loader, desc=f"epoch {epoch}", leave=False)
        for i, (x,) in enumerate(pbar):
            t = torch.randint(0, timesteps, (x.shape[0],))
            x_t, noise = diffusion.noise(x, t)
            loss = mse(model(x_t, t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            pbar.set_postfix(MSE=loss.item())
        sampled = diffusion.sample(ema.shadow, 64)
        print(f"epoch {epoch} mse {loss.item():.4f} std {sampled.std().item():.4f}")
    torch.save({"model": model.state_dict(), "ema": ema.shadow.state_dict()}, "ckpt.pt")
