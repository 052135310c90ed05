"""Gradient reduction: overlapped sums over the ranks, and a fixed binary tree for equal bits at any world size."""
