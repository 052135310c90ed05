"""Split calls of a program's modules over the ranks, so that each rank computes some rows of each batch."""
