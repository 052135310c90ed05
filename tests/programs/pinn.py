import torch
import torch.nn as nn

# A physics-informed network: u'' + u = 0, u(0) = 0, u'(0) = 1. Trains until the residual is small.
torch.manual_seed(123)


class FCN(nn.Module):
    def __init__(self, n_input, n_output, n_hidden, n_layers):
        super().__init__()
        activation = nn.Tanh
        self.fcs = nn.Sequential(*[nn.Linear(n_input, n_hidden), activation()])
        self.fch = nn.Sequential(*[nn.Sequential(*[nn.Linear(n_hidden, n_hidden), activation()]) for _ in range(n_layers - 1)])
        self.fce = nn.Linear(n_hidden, n_output)

    def forward(self, x):
        return self.fce(self.fch(self.fcs(x)))


pinn = FCN(1, 1, 16, 2)
optimiser = torch.optim.Adam(pinn.parameters(), lr=5e-3)
t_boundary = torch.tensor(0.).view(-1, 1).requires_grad_(True)
residual, i = float('inf'), 0
snapshots = {}
while residual > 2e-2 and i < 300:
    optimiser.zero_grad()
    u = pinn(t_boundary)
    loss1 = (torch.squeeze(u) - 0) ** 2
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = (torch.squeeze(dudt) - 1) ** 2
    t_physics = torch.rand(32, 1).mul(3.0).requires_grad_(True)
    u = pinn(t_physics)
    dudt = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t_physics, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + u) ** 2)
    loss = loss1 + 1e-1 * loss2 + 1e-1 * loss3
    loss.backward()
    optimiser.step()
    residual = loss.item()
    if i % 50 == 0:
        snapshots[i] = u.detach().mean().item()
        print(f'{i} loss={residual:.6f} boundary={loss1.item():.6f} physics={loss3.item():.6f}')
    i += 1
print(f'stopped after {i} iterations, residual {residual:.6f}')
