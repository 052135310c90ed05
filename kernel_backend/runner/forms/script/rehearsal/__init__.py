"""Rehearse restarts: resume a checkpoint in a second process during the training, and compare all variables."""
