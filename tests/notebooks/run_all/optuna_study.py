# %%
import optuna
import torch
from torch import nn

optuna.logging.set_verbosity(optuna.logging.WARNING)
torch.manual_seed(0)
x = torch.randn(64, 3)
y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))


# %% submit
def objective(trial):
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True))
    for epoch in range(3):
        opt.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        opt.step()
    return loss.item()


study.optimize(objective, n_trials=4)
# %%
print(study.best_params, study.best_value)
# %%
study.trials_dataframe()[["number", "value", "params_lr"]]
