"""Parse a notebook cell that trains with a Hugging Face Trainer."""
