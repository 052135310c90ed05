"""Verbs of registered models."""
