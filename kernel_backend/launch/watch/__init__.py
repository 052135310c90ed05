"""Monitor ranks while they run: progress, hangs, stacks and log patterns."""
