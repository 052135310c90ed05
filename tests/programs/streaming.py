import itertools
import logging
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format='%(message)s')
logger = logging.getLogger(__name__)


class Stream(IterableDataset):
    """An endless stream with a state of its own; one pass."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        w = torch.linspace(-1, 1, 8)
        for i in itertools.count():
            x = torch.randn(8, generator=g)
            yield x, (x @ w > 0.1 * torch.sin(torch.tensor(i / 50.0))).float()


def main():
    torch.manual_seed(77)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    window = []
    for step, (x, y) in enumerate(DataLoader(Stream(5), batch_size=16)):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        window = (window + [loss.item()])[-20:]
        if step % 20 == 0:
            logger.info('step=%d loss=%.5f', step, sum(window) / len(window))
        if step >= 140:
            break
    return model


if __name__ == '__main__':
    model = main()
