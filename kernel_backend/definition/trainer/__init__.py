"""Read a cell that trains with a Trainer of Hugging Face."""
