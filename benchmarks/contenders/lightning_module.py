"""A cell that Lightning alone trains, and Daylight: the shared work as a LightningModule, which tells of each step.

Who trains it sets `step`, `params`, `batch_size` and `workers` before.
"""

import lightning

from contenders import peers, work


class Shared(lightning.LightningModule):
    """The shared work."""

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
