"""Probe the nodes of a pool, for engines whose gangs run on other machines: orders, answers and findings."""
