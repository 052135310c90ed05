"""Environments: what another interpreter holds, a lock of it, and what is built from a lock."""
