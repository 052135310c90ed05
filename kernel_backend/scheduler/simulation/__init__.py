"""Simulate a cluster by discrete events: workloads, scheduling policies, and metrics of fairness and utilisation."""
