"""Define the shared training as a LightningModule that calls the hook before each step.

The contender that trains it sets `step`, `params`, `batch_size` and `workers` before the cell is executed.
"""

import lightning

from contenders import peers, work


class Shared(lightning.LightningModule):
    """The shared training as a LightningModule."""

    def __init__(self):
        super().__init__()
        self.data, self.net, self.updates = peers.parts(params, batch_size, workers)  # noqa: F821

    def on_train_batch_start(self, batch, index):
        step()  # noqa: F821

    def training_step(self, batch, index):
        x, y = batch
        return work.loss(self.net(x), y)

    def train_dataloader(self):
        return self.data

    def configure_optimizers(self):
        return self.updates
