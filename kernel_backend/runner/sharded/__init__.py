"""Train a model whose parameters, gradients and optimizer state are sharded over the ranks (`--strategy fsdp2`)."""
