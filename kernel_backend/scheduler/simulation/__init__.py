"""Simulate a cluster by discrete events: workloads, policies, and measures of fairness and utilisation."""
