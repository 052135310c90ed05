"""Train programs that have a training loop of their own, without changes to their source files."""
