# %%
from collections import deque
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(543)
rng = np.random.default_rng(543)
args = SimpleNamespace(gamma=0.9, lr=0.05, log_interval=5)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(3, 2)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        return self.affine(x).softmax(-1)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
eps = np.finfo(np.float32).eps.item()


def select_action(state):
    m = Categorical(policy(torch.from_numpy(state).float()))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R, returns = 0, deque()
    for r in policy.rewards[::-1]:
        R = r + args.gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    loss = -(torch.stack(policy.saved_log_probs) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


# %% submit
running_reward, episode_rewards, recent = 0.0, [], deque(maxlen=3)
for i_episode in range(12):
    state, ep_reward = rng.normal(size=3), 0
    for t in range(6):
        action = select_action(state)
        reward = float(action == (state[0] > 0))
        state = rng.normal(size=3)
        policy.rewards.append(reward)
        ep_reward += reward
    running_reward = 0.1 * ep_reward + 0.9 * running_reward
    episode_rewards.append(ep_reward)
    recent.append(ep_reward)
    finish_episode()
# %%
print(f"episode {i_episode}, running {running_reward:.4f}, recent {recent}")
# %%
policy.rewards, policy.saved_log_probs, args.log_interval
# %%
np.convolve(episode_rewards, np.ones(3) / 3, "valid").round(3)
# %%
policy(torch.ones(3)), rng.normal(size=2)
