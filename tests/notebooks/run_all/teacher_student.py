# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import make_moons

torch.manual_seed(5)
X, y = make_moons(300, noise=0.2, random_state=5)
X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)


def mlp(width):
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))


teacher, student = mlp(32), mlp(4)


@torch.no_grad()
def accuracy(model):
    return (model(X).argmax(1) == y).float().mean().item()


# %% submit
teacher_opt = torch.optim.Adam(teacher.parameters(), lr=0.02)
for epoch in range(20):
    loss = F.cross_entropy(teacher(X), y)
    teacher_opt.zero_grad()
    loss.backward()
    teacher_opt.step()
teacher_acc = accuracy(teacher)
print("teacher", teacher_acc)
# %% submit
T, alpha = 2.0, 0.7
student_opt = torch.optim.Adam(student.parameters(), lr=0.05)
teacher.eval()
kd_losses = []
for epoch in range(20):
    with torch.no_grad():
        soft = F.softmax(teacher(X) / T, dim=1)
    out = student(X)
    kd = F.kl_div(F.log_softmax(out / T, dim=1), soft, reduction="batchmean") * T * T
    loss = alpha * kd + (1 - alpha) * F.cross_entropy(out, y)
    student_opt.zero_grad()
    loss.backward()
    student_opt.step()
    kd_losses.append(kd.item())
# %%
print(f"teacher {teacher_acc:.4f}, student {accuracy(student):.4f}, KD {kd_losses[0]:.6f} -> {kd_losses[-1]:.6f}")
# %%
agreement = (student(X).argmax(1) == teacher(X).argmax(1)).float().mean()
agreement, T, alpha, teacher.training
