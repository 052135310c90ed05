import torch
from torch import nn
import sys
class Tee:
    def __init__(self, *files): self.files = files
    def write(self, text):
        for each in self.files: each.write(text)
    def flush(self):
        for each in self.files: each.flush()
file = open("tee.log", "w")
sys.stdout = Tee(sys.stdout, file)
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
print(f"loss {loss.item()!r}")
sys.stdout = sys.stdout.files[0]
file.close()
