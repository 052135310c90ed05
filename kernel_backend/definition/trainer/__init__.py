"""Parse a cell that trains with a Hugging Face Trainer."""
