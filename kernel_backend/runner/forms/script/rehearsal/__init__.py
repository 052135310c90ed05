"""Rehearse a restart: while the training runs, resume its checkpoint in a second process and compare all variables."""
