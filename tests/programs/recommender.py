import numpy as np
import torch
from torch import nn

rng = np.random.RandomState(9)
torch.manual_seed(9)
n_users, n_items, n_factors = 80, 50, 6
true_u, true_i = rng.randn(n_users, 3), rng.randn(n_items, 3)
ratings = [(u, i, float(true_u[u] @ true_i[i])) for u in range(n_users) for i in rng.choice(n_items, 8, replace=False)]


class MatrixFactorization(nn.Module):
    def __init__(self):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, n_factors, sparse=True)
        self.item_factors = nn.Embedding(n_items, n_factors, sparse=True)

    def forward(self, user, item):
        return (self.user_factors(user) * self.item_factors(item)).sum(1)


model = MatrixFactorization()
loss_func = nn.MSELoss()
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.02)
for epoch in range(6):
    rng.shuffle(ratings)
    total = []
    for start in range(0, len(ratings), 32):
        users, items, values = zip(*ratings[start:start + 32])
        prediction = model(torch.LongTensor(users), torch.LongTensor(items))
        loss = loss_func(prediction, torch.FloatTensor(values))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total.append(loss.item())
    print('epoch', epoch, 'rmse', np.sqrt(np.mean(total)))
