"""Rehearse a restart: resume a checkpoint in a second process while the training runs, and compare all variables."""
