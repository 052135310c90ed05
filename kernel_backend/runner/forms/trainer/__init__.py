"""Train a cell's Hugging Face Trainer with the Trainer's own loop."""
