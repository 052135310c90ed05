"""Split the calls of a program's torch modules over the ranks, so that each rank computes some rows of each batch."""
