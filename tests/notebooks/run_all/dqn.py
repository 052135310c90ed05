# %%
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

random.seed(3)
np.random.seed(3)
torch.manual_seed(3)
Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "done"))


class Corridor:
    """Walk right to the goal."""

    def __init__(self, length=5):
        self.length, self.at = length, 0

    def reset(self):
        self.at = 0
        return self.observed()

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        done = self.at == self.length - 1
        return self.observed(), 1.0 if done else -0.05, done

    def observed(self):
        return np.eye(self.length, dtype=np.float32)[self.at]


# %%
env = Corridor()
policy_net, target_net = nn.Linear(5, 2), nn.Linear(5, 2)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.Adam(policy_net.parameters(), lr=0.05)
memory = deque(maxlen=200)
GAMMA, BATCH = 0.9, 16
# %% submit
eps, episode_rewards = 1.0, []
for episode in range(12):
    state, total = env.reset(), 0.0
    for t in range(20):
        if random.random() < eps:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = policy_net(torch.from_numpy(state)).argmax().item()
        next_state, reward, done = env.step(action)
        memory.append(Transition(state, action, reward, next_state, done))
        state, total = next_state, total + reward
        if len(memory) >= BATCH:
            batch = Transition(*zip(*random.sample(memory, BATCH)))
            states, next_states = torch.tensor(np.array(batch.state)), torch.tensor(np.array(batch.next_state))
            q = policy_net(states).gather(1, torch.tensor(batch.action).unsqueeze(1)).squeeze(1)
            with torch.no_grad():
                target = torch.tensor(batch.reward) + GAMMA * target_net(next_states).max(1).values * (
                    ~torch.tensor(batch.done)
                )
            loss = nn.functional.smooth_l1_loss(q, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if done:
            break
    eps = max(0.1, eps * 0.8)
    episode_rewards.append(total)
    if episode % 3 == 0:
        target_net.load_state_dict(policy_net.state_dict())
# %%
print(f"episodes {episode + 1}, eps {eps:.4f}, last rewards {np.round(episode_rewards[-5:], 3).tolist()}")
# %%
type(memory[0]) is Transition, memory.maxlen, len(memory), memory[-1]
# %%
state, path = env.reset(), []
for _ in range(8):
    with torch.no_grad():
        action = policy_net(torch.from_numpy(state)).argmax().item()
    path.append(action)
    state, _, done = env.step(action)
    if done:
        break
path, env.at
# %%
memory.append(memory[0])
print(len(memory), sum(each.reward for each in memory), target_net.weight.sum().item())
