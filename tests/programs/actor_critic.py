"""PPO: rollouts, then several epochs of minibatches over them."""
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal
from torch.utils.data.sampler import BatchSampler, SubsetRandomSampler


class PointEnv:
    """Move to the origin; many environments at once, with a generator of its own."""

    def __init__(self, num_envs, seed):
        self.num_envs = num_envs
        self.rng = np.random.default_rng(seed)
        self.pos = self.rng.uniform(-1, 1, (num_envs, 2)).astype(np.float32)

    def step(self, action):
        self.pos = (self.pos + 0.2 * np.clip(action, -1, 1)).astype(np.float32)
        reward = -np.abs(self.pos).sum(1)
        done = (reward > -0.1) | (self.rng.random(self.num_envs) < 0.02)
        self.pos[done] = self.rng.uniform(-1, 1, (int(done.sum()), 2))
        return self.pos.copy(), reward.astype(np.float32), done.astype(np.float32)


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(2, 32)), nn.Tanh(), layer_init(nn.Linear(32, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(2, 32)), nn.Tanh(), layer_init(nn.Linear(32, 2), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Normal(self.actor_mean(x), self.actor_logstd.expand(x.shape[0], 2).exp())
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


seed, num_envs, num_steps, num_updates, update_epochs, minibatch = 1, 8, 16, 8, 3, 32
np.random.seed(seed)
torch.manual_seed(seed)
envs, agent = PointEnv(num_envs, seed), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
obs = torch.zeros((num_steps, num_envs, 2))
actions = torch.zeros((num_steps, num_envs, 2))
logprobs, rewards, dones, values = (torch.zeros((num_steps, num_envs)) for _ in range(4))
global_step = 0
next_obs, next_done = torch.Tensor(envs.pos), torch.zeros(num_envs)

for update in range(1, num_updates + 1):
    optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / num_updates) * 1e-3
    for step in range(num_steps):
        global_step += num_envs
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
            values[step] = value.flatten()
        actions[step], logprobs[step] = action, logprob
        o, reward, d = envs.step(action.numpy())
        rewards[step] = torch.tensor(reward)
        next_obs, next_done = torch.Tensor(o), torch.Tensor(d)
    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
        advantages = torch.zeros_like(rewards)
        lastgaelam = 0
        for t in reversed(range(num_steps)):
            nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            nextvalues = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + 0.95 * nextvalues * nonterminal - values[t]
            advantages[t] = lastgaelam = delta + 0.95 * 0.9 * nonterminal * lastgaelam
        returns = advantages + values
    b_obs, b_actions = obs.reshape(-1, 2), actions.reshape(-1, 2)
    b_logprobs, b_advantages, b_returns = logprobs.reshape(-1), advantages.reshape(-1), returns.reshape(-1)
    for epoch in range(update_epochs):
        for mb_inds in BatchSampler(SubsetRandomSampler(range(num_envs * num_steps)), minibatch, False):
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
            ratio = (newlogprob - b_logprobs[mb_inds]).exp()
            adv = b_advantages[mb_inds]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb_inds]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"global_step={global_step}, reward={rewards.mean().item():.4f}, value_loss={v_loss.item():.4f}")
