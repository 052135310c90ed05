"""Measure the use of a node's slots by its ranks: GPU, CPU, memory, temperature, power."""
