"""Rehearse restarts: during the training, another process resumes a checkpoint, and all variables are compared."""
