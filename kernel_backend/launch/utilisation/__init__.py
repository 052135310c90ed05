"""Measure how much a node's ranks use their slots: GPU, CPU, memory, temperature, power."""
