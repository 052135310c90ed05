"""Split the calls of a program's modules over the ranks, so that each computes its rows of every batch."""
