# %%
import optuna
import torch
from sklearn.datasets import load_iris
from torch import nn

optuna.logging.set_verbosity(optuna.logging.ERROR)
X, y = (torch.tensor(each) for each in load_iris(return_X_y=True))
X = ((X - X.mean(0)) / X.std(0)).float()


def build(trial):
    hidden = trial.suggest_int("hidden", 2, 16)
    act = trial.suggest_categorical("act", ["ReLU", "Tanh"])
    return nn.Sequential(nn.Linear(4, hidden), getattr(nn, act)(), nn.Linear(hidden, 3))


# %% submit
best_models = {}


def objective(trial):
    torch.manual_seed(trial.number)
    net = build(trial)
    opt = torch.optim.Adam(net.parameters(), lr=trial.suggest_float("lr", 1e-4, 1e-1, log=True))
    for epoch in range(6):
        loss = nn.functional.cross_entropy(net(X), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        accuracy = (net(X).argmax(1) == y).float().mean().item()
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned()
    best_models[trial.number] = net
    trial.set_user_attr("loss", loss.item())
    return accuracy


study = optuna.create_study(
    direction="maximize", sampler=optuna.samplers.TPESampler(seed=0), pruner=optuna.pruners.MedianPruner(2)
)
study.optimize(objective, n_trials=6)
# %%
print(study.best_trial.number, study.best_params, study.best_value, study.best_trial.user_attrs)
# %%
[trial.state.name for trial in study.trials], sorted(best_models)
# %%
net = best_models[study.best_trial.number]
(net(X).argmax(1) == y).float().mean().item() == study.best_value
# %%
study.trials[0].intermediate_values, study.direction.name
# %%
study.optimize(objective, n_trials=1)
len(study.trials), study.trials[-1].params
