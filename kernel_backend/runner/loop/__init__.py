"""Run the training loop: steps, losses, validation, reports and checkpoints."""
