"""Sum gradients over the ranks: during the backward pass, or in a tree for equal bits on any number of ranks."""
