import torch
from torch import nn
import optuna, logging
optuna.logging.set_verbosity(logging.ERROR)
study = optuna.create_study(storage="sqlite:///study.db", study_name="one")
trial = study.ask()
width = trial.suggest_int("width", 3, 3)
torch.manual_seed(0)
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    pass
print(f"loss {loss.item()!r}")
study.tell(trial, 1.0)
print(len(optuna.load_study(study_name="one", storage="sqlite:///study.db").trials), width)
import os
os.remove("study.db")
