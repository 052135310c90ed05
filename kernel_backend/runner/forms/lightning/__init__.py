"""Train a LightningModule with Lightning's own Trainer, so that it can be resumed exactly at any step."""
