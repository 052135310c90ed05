"""Reduce gradients: overlapped sums over the ranks, or a fixed binary tree for equal bits at any world size."""
