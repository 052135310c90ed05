"""Contenders, workloads and the order of turns that the benchmarks of training share."""
