"""Split calls of a program's modules over the ranks: each rank computes some rows of each batch."""
