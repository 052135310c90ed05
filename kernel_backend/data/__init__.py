"""Data that a person has declared: what it is now, by a list of its files, and whether it is what it was."""

from kernel_backend.data.base import File, Fingerprint, changed_text
from kernel_backend.data.declared import Declared, changed_since, declare, fingerprint

__all__ = ["Declared", "File", "Fingerprint", "changed_since", "changed_text", "declare", "fingerprint"]
