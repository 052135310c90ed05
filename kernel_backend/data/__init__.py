"""Data that a person has declared: what it is now, by a list of its files, and whether it is what it was."""

from kernel_backend.data.base import Difference, File, Fingerprint, changes, compare, parse
from kernel_backend.data.declared import Declared, declare, fingerprint

__all__ = ["Declared", "Difference", "File", "Fingerprint", "changes", "compare", "declare", "fingerprint", "parse"]
