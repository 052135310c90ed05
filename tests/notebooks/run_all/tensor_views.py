# %%
import torch

torch.manual_seed(0)
A = torch.randn(30, 6)
target = A @ torch.tensor([1.0, -2, 3, 0, 0, 1])
flat = torch.zeros(7)
# %% submit
weights, bias = flat[:6], flat[6]
table = torch.zeros(10, 3)
losses = table[:, 1]
w = torch.zeros(6, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.05)
for i in range(10):
    optimizer.zero_grad()
    loss = (A @ w - target).pow(2).mean()
    loss.backward()
    optimizer.step()
    table[i] = torch.stack([torch.tensor(float(i)), loss.detach(), w.detach().norm()])
    flat[:6] = w.detach()
    flat[6] = loss.item()
rows = torch.stack([flat.clone(), flat * 2])
first_row, transposed = rows[0], rows.t()
# %%
flat
# %%
print(bias.item() == loss.item(), weights.tolist() == w.tolist(), losses.tolist() == table[:, 1].tolist())
# %%
flat[0] = 100
weights[0], flat[:2].tolist()
# %%
table[3, 1] = -1
losses[3], losses.untyped_storage().data_ptr() == table.untyped_storage().data_ptr(), losses.stride()
# %%
first_row.fill_(5)
rows, transposed[:, 0], transposed.is_contiguous()
