"""Find the largest batch size that fits into memory, for `--batch-size auto`."""
