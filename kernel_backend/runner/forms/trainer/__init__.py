"""Train a cell with a Trainer of Hugging Face under the Trainer's own loop."""
