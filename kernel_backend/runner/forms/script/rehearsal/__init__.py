"""Rehearse a restart: resume a checkpoint in a second process while the training goes on, and compare every name."""
