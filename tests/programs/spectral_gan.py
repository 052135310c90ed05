from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from tqdm.auto import trange

cfg = SimpleNamespace(steps=120, bs=48, z=4, seed=14, lr_g=2e-4, lr_d=4e-4, r1=0.1)
torch.manual_seed(cfg.seed)
D = nn.Sequential(spectral_norm(nn.Linear(2, 32)), nn.LeakyReLU(0.1), spectral_norm(nn.Linear(32, 1)))
G = nn.Sequential(weight_norm(nn.Linear(cfg.z, 32)), nn.ReLU(), nn.Linear(32, 2))
opt_d = torch.optim.Adam(D.parameters(), cfg.lr_d, betas=(0.0, 0.9))
opt_g = torch.optim.Adam(G.parameters(), cfg.lr_g, betas=(0.0, 0.9))


def real_batch(n):
    t = torch.rand(n) * 6.2832
    return torch.stack([t.sin(), (2 * t).sin() / 2], 1)


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


pbar = trange(cfg.steps)
for i in pbar:
    requires_grad(D, True)
    real = real_batch(cfg.bs).requires_grad_(True)
    fake = G(torch.randn(cfg.bs, cfg.z)).detach()
    out_real = D(real)
    d_loss = torch.relu(1 - out_real).mean() + torch.relu(1 + D(fake)).mean()
    if i % 8 == 0:
        grad, = torch.autograd.grad(out_real.sum(), real, create_graph=True)
        d_loss = d_loss + cfg.r1 / 2 * grad.pow(2).sum(1).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    requires_grad(D, False)
    g_loss = -D(G(torch.randn(cfg.bs, cfg.z))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    pbar.set_description(f'd {d_loss.item():.3f} g {g_loss.item():.3f}')
    if (i + 1) % 30 == 0:
        tqdm_line = f'step {i + 1}: d_loss={d_loss.item():.5f} g_loss={g_loss.item():.5f}'
        pbar.write(tqdm_line)
