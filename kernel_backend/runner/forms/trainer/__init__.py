"""Train with the Hugging Face Trainer of a user's cell, by the Trainer's own loop, as the ranks of a job."""
