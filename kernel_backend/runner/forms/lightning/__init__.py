"""Train a LightningModule under Lightning's own Trainer, exactly resumable at any step."""
